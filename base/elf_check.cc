// Structure: Image::Parse collects the few tables an artifact has, each step refusing what it does not know; only then
// symbols, hash tables and relocations are read, all of them through Image::Bytes, which checks every range; last the
// code (code_check.h). An allow list throughout: a tag, a segment type, a relocation or an instruction that is not
// named is refused.
#include "base/elf_check.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "base/code_check.h"
#include "base/hash.h"

namespace hone {
namespace {

struct Machine {
  uint16_t elf;
  uint32_t relative;  // its one relocation
};
constexpr Machine kMachines[] = {{EM_X86_64, R_X86_64_RELATIVE}, {EM_AARCH64, R_AARCH64_RELATIVE}};
#if defined(__x86_64__)
constexpr uint16_t kThisMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kThisMachine = EM_AARCH64;
#else
#error "no artifacts for this machine yet: add its ELF machine number and relative relocation"
#endif

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxSpan = uint64_t{128} << 20;  // of the mapped image
constexpr uint32_t kMaxSegments = 16;
constexpr uint32_t kMaxSymbols = 64;

template <typename... Args>
Error Refuse(fmt::format_string<Args...> format, Args&&... args) {
  return Error{ErrorKind::kCorrupt, "artifact refused: " + fmt::format(format, std::forward<Args>(args)...), ""};
}

bool Within(uint64_t begin, uint64_t size, uint64_t outer_begin, uint64_t outer_size) {
  return begin >= outer_begin && size <= outer_size && begin - outer_begin <= outer_size - size;
}

std::string TagName(int64_t tag) {
  switch (tag) {
    case DT_NEEDED: return "DT_NEEDED: it wants another library";
    case DT_INIT:
    case DT_INIT_ARRAY:
    case DT_INIT_ARRAYSZ:
    case DT_PREINIT_ARRAY:
    case DT_PREINIT_ARRAYSZ: return "a constructor (DT_INIT, DT_INIT_ARRAY): code that runs when it is loaded";
    case DT_FINI:
    case DT_FINI_ARRAY:
    case DT_FINI_ARRAYSZ: return "a destructor (DT_FINI, DT_FINI_ARRAY): code that runs when it is unloaded";
    case DT_TEXTREL: return "DT_TEXTREL: relocations in its code";
    case DT_JMPREL:
    case DT_PLTREL:
    case DT_PLTRELSZ:
    case DT_PLTGOT: return "a PLT: calls to functions it does not define";
    case DT_RPATH:
    case DT_RUNPATH: return "a library search path";
    case DT_RELR:
    case DT_RELRSZ:
    case DT_RELRENT: return "DT_RELR relocations";
    default: return fmt::format("dynamic tag {:#x}", static_cast<uint64_t>(tag));
  }
}

class Image {
 public:
  Image(std::span<const std::byte> bytes, bool other_machine) : bytes_(bytes), other_machine_(other_machine) {}

  Result<ArtifactLayout> Check() {
    HONE_TRY(ReadHeader());
    HONE_TRY(ReadSegments());
    HONE_TRY(ReadDynamic());
    HONE_TRY(CountSymbols());
    HONE_TRY(ReadSymbols());
    HONE_TRY(CheckRelocations());
    HONE_TRY(CheckExecutable());
    if (!has_entry_) return Refuse("it does not export {}", kEntrySymbolName);
    if (layout_.manifest.empty()) return Refuse("it does not export {}", kManifestSymbolName);
    return layout_;
  }

 private:
  // File bytes behind a range of addresses that one segment holds; `what` names it in the message.
  Result<std::span<const std::byte>> Bytes(uint64_t address, uint64_t size, uint32_t wanted, uint32_t unwanted,
                                           std::string_view what) const {
    for (const Elf64_Phdr& load : loads_)
      if (Within(address, size, load.p_vaddr, load.p_filesz)) {
        if ((load.p_flags & wanted) != wanted || (load.p_flags & unwanted) != 0)
          return Refuse("{} lies in a segment with flags {}", what, load.p_flags);
        return bytes_.subspan(load.p_offset + (address - load.p_vaddr), size);
      }
    return Refuse("{} ({} bytes at {:#x}) lies outside its segments", what, size, address);
  }

  Result<void> ReadHeader() {
    if (bytes_.size() < sizeof(Elf64_Ehdr)) return Refuse("{} bytes are too few for an ELF header", bytes_.size());
    header_ = ReadAt<Elf64_Ehdr>(bytes_, 0);
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) return Refuse("not an ELF file");
    if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB)
      return Refuse("not 64-bit little-endian ELF");
    if (header_.e_ident[EI_VERSION] != EV_CURRENT || header_.e_version != EV_CURRENT)
      return Refuse("ELF version {}", header_.e_version);
    if (header_.e_ident[EI_OSABI] != ELFOSABI_NONE || header_.e_ident[EI_ABIVERSION] != 0)
      return Refuse("OS ABI {} (GNU extensions such as IFUNC), wanted 0", header_.e_ident[EI_OSABI]);
    if (header_.e_type != ET_DYN) return Refuse("ELF type {}, wanted a shared object", header_.e_type);
    for (const Machine& machine : kMachines)
      if (machine.elf == header_.e_machine && (other_machine_ || machine.elf == kThisMachine)) machine_ = &machine;
    if (machine_ == nullptr) return Refuse("for ELF machine {}, this is machine {}", header_.e_machine, kThisMachine);
    if (header_.e_flags != 0) return Refuse("ELF flags {:#x}", header_.e_flags);
    if (header_.e_ehsize != sizeof(Elf64_Ehdr) || header_.e_phentsize != sizeof(Elf64_Phdr))
      return Refuse("header sizes {} and {}", header_.e_ehsize, header_.e_phentsize);
    if (header_.e_phnum == 0 || header_.e_phnum > kMaxSegments) return Refuse("{} program headers", header_.e_phnum);
    uint64_t table = uint64_t{header_.e_phnum} * sizeof(Elf64_Phdr);
    if (header_.e_phoff < sizeof(Elf64_Ehdr) || !Within(header_.e_phoff, table, 0, bytes_.size()))
      return Refuse("program headers at {:#x} lie outside the file of {} bytes", header_.e_phoff, bytes_.size());
    // Section headers are for tools; the loader never looks. Still no reason for them to point elsewhere.
    if (header_.e_shnum != 0 &&
        (header_.e_shentsize != sizeof(Elf64_Shdr) ||
         !Within(header_.e_shoff, uint64_t{header_.e_shnum} * sizeof(Elf64_Shdr), 0, bytes_.size())))
      return Refuse("section headers at {:#x} lie outside the file of {} bytes", header_.e_shoff, bytes_.size());
    return {};
  }

  Result<void> ReadSegments() {
    std::optional<uint32_t> stack_flags;
    for (uint32_t i = 0; i < header_.e_phnum; ++i) {
      Elf64_Phdr segment = ReadAt<Elf64_Phdr>(bytes_, header_.e_phoff + i * sizeof(Elf64_Phdr));
      switch (segment.p_type) {
        case PT_LOAD: HONE_TRY(AddLoad(segment)); break;
        case PT_DYNAMIC:
          if (dynamic_) return Refuse("two dynamic segments");
          dynamic_ = segment;
          break;
        case PT_GNU_STACK: stack_flags = segment.p_flags; break;
        case PT_GNU_RELRO:
          if (relro_) return Refuse("two RELRO segments");
          relro_ = segment;
          break;
        case PT_PHDR: phdr_ = segment; break;
        case PT_TLS: return Refuse("thread-local storage");
        case PT_INTERP: return Refuse("a program interpreter: it is a program, not a library");
        default: return Refuse("program header of type {:#x}", segment.p_type);
      }
    }
    if (loads_.empty()) return Refuse("nothing to load");
    if (!stack_flags || (*stack_flags & PF_X) != 0) return Refuse("it asks for an executable stack");
    if (!dynamic_) return Refuse("no dynamic segment");
    // glibc reads the headers again, in memory, where PT_PHDR says that they are.
    if (phdr_ && (phdr_->p_offset != header_.e_phoff || phdr_->p_memsz != phdr_->p_filesz ||
                  phdr_->p_memsz < uint64_t{header_.e_phnum} * sizeof(Elf64_Phdr) || !InLoad(*phdr_, PF_R, false)))
      return Refuse("PT_PHDR names another table");
    // It makes RELRO's range read-only after relocation, page by page, wherever it lies.
    if (relro_ && !InLoad(*relro_, PF_W, true)) return Refuse("RELRO lies outside its writable segment");
    return {};
  }

  Result<void> AddLoad(const Elf64_Phdr& load) {
    if ((load.p_flags & ~static_cast<uint32_t>(PF_R | PF_W | PF_X)) != 0 || (load.p_flags & PF_R) == 0)
      return Refuse("segment flags {:#x}", load.p_flags);
    if ((load.p_flags & PF_W) != 0 && (load.p_flags & PF_X) != 0)
      return Refuse("a segment that is writable and executable");
    if (!Within(load.p_offset, load.p_filesz, 0, bytes_.size()))
      return Refuse("a segment ({} bytes at {:#x}) lies outside the file of {} bytes", load.p_filesz, load.p_offset,
                    bytes_.size());
    if (load.p_memsz == 0 || load.p_filesz > load.p_memsz) return Refuse("a segment of {} bytes", load.p_memsz);
    if (load.p_filesz < load.p_memsz && (load.p_flags & PF_W) == 0) return Refuse("a read-only segment with zero fill");
    if (load.p_align < kPage || load.p_align > (1 << 16) || (load.p_align & (load.p_align - 1)) != 0 ||
        load.p_vaddr % load.p_align != load.p_offset % load.p_align)
      return Refuse("segment alignment {} at {:#x}, file offset {:#x}", load.p_align, load.p_vaddr, load.p_offset);
    if (!Within(load.p_vaddr, load.p_memsz, 0, kMaxSpan))
      return Refuse("a segment of {} bytes at {:#x}", load.p_memsz, load.p_vaddr);
    if (!loads_.empty()) {
      const Elf64_Phdr& before = loads_.back();
      uint64_t end = (before.p_vaddr + before.p_memsz + kPage - 1) / kPage * kPage;
      if (load.p_vaddr / kPage * kPage < end) return Refuse("segments that overlap or are out of order");
    }
    loads_.push_back(load);
    return {};
  }

  // Is the range inside one PT_LOAD that has `flags`? RELRO may reach into the zero fill, and to the end of its page.
  bool InLoad(const Elf64_Phdr& part, uint32_t flags, bool zero_fill) const {
    return std::any_of(loads_.begin(), loads_.end(), [&](const Elf64_Phdr& load) {
      uint64_t size =
          zero_fill ? (load.p_vaddr + load.p_memsz + kPage - 1) / kPage * kPage - load.p_vaddr : load.p_filesz;
      return Within(part.p_vaddr, part.p_memsz, load.p_vaddr, size) && (load.p_flags & flags) == flags &&
             part.p_offset - load.p_offset == part.p_vaddr - load.p_vaddr;
    });
  }

  Result<void> ReadDynamic() {
    uint32_t writable = dynamic_->p_flags & PF_W;  // glibc relocates it in place unless it says that it is read-only
    if (dynamic_->p_filesz != dynamic_->p_memsz || !InLoad(*dynamic_, PF_R | writable, false))
      return Refuse("the dynamic segment lies outside its segment");
    std::span<const std::byte> table =
        HONE_TRY(Bytes(dynamic_->p_vaddr, dynamic_->p_filesz, PF_R | writable, PF_X, "the dynamic segment"));
    for (uint64_t at = 0;; at += sizeof(Elf64_Dyn)) {
      if (at + sizeof(Elf64_Dyn) > table.size()) return Refuse("the dynamic segment has no end");
      Elf64_Dyn entry = ReadAt<Elf64_Dyn>(table, at);
      if (entry.d_tag == DT_NULL) break;
      HONE_TRY(TakeTag(entry));
    }
    if (!symtab_ || !strtab_ || !strsz_) return Refuse("no symbol table");
    if (symbol_size_ && *symbol_size_ != sizeof(Elf64_Sym)) return Refuse("symbols of {} bytes", *symbol_size_);
    // glibc reads all three where there is the first.
    if (rela_.has_value() != rela_size_.has_value() || rela_.has_value() != rela_entry_.has_value() ||
        (rela_size_ && *rela_size_ % sizeof(Elf64_Rela) != 0) || (rela_entry_ && *rela_entry_ != sizeof(Elf64_Rela)))
      return Refuse("a malformed relocation table");
    return {};
  }

  Result<void> TakeTag(const Elf64_Dyn& entry) {
    std::optional<uint64_t>* slot = nullptr;
    switch (entry.d_tag) {
      case DT_SYMTAB: slot = &symtab_; break;
      case DT_STRTAB: slot = &strtab_; break;
      case DT_STRSZ: slot = &strsz_; break;
      case DT_SYMENT: slot = &symbol_size_; break;
      case DT_HASH: slot = &sysv_hash_; break;
      case DT_GNU_HASH: slot = &gnu_hash_; break;
      case DT_RELA: slot = &rela_; break;
      case DT_RELASZ: slot = &rela_size_; break;
      case DT_RELAENT: slot = &rela_entry_; break;
      case DT_RELACOUNT: slot = &rela_count_; break;
      case DT_SONAME: slot = &soname_; break;
      case DT_FLAGS:
        slot = &flags_;
        if ((entry.d_un.d_val & ~uint64_t{DF_BIND_NOW | DF_SYMBOLIC}) != 0) {
          if ((entry.d_un.d_val & DF_TEXTREL) != 0) return Refuse("{}", TagName(DT_TEXTREL));
          if ((entry.d_un.d_val & DF_STATIC_TLS) != 0) return Refuse("thread-local storage");
          return Refuse("DT_FLAGS {:#x}", entry.d_un.d_val);
        }
        break;
      case DT_FLAGS_1:
        slot = &flags_1_;
        if ((entry.d_un.d_val & ~uint64_t{DF_1_NOW}) != 0) return Refuse("DT_FLAGS_1 {:#x}", entry.d_un.d_val);
        break;
      default: return Refuse("{}", TagName(entry.d_tag));
    }
    if (*slot) return Refuse("dynamic tag {:#x} appears twice", static_cast<uint64_t>(entry.d_tag));
    *slot = entry.d_un.d_val;
    return {};
  }

  // The dynamic symbol table does not say how long it is; the hash tables do. Both are walked as the loader walks them,
  // so that a lookup in a hostile one cannot run away.
  Result<void> CountSymbols() {
    if (!sysv_hash_ && !gnu_hash_) return Refuse("no symbol hash table");
    std::optional<uint32_t> sysv, gnu;
    if (sysv_hash_) sysv = HONE_TRY(CountSysvHash(*sysv_hash_));
    if (gnu_hash_) gnu = HONE_TRY(CountGnuHash(*gnu_hash_));
    if (sysv && gnu && *sysv != *gnu) return Refuse("hash tables of {} and {} symbols", *sysv, *gnu);
    symbols_ = sysv ? *sysv : *gnu;
    return {};
  }

  Result<uint32_t> CountSysvHash(uint64_t address) const {
    std::span<const std::byte> head = HONE_TRY(Bytes(address, 8, PF_R, PF_W, "the hash table"));
    uint32_t buckets = ReadAt<uint32_t>(head, 0), chains = ReadAt<uint32_t>(head, 4);
    if (buckets == 0 || buckets > kMaxSymbols || chains > kMaxSymbols)
      return Refuse("a hash table of {} symbols", chains);
    std::span<const std::byte> table =
        HONE_TRY(Bytes(address, 8 + 4 * (uint64_t{buckets} + chains), PF_R, PF_W, "the hash table"));
    auto chain = [&](uint32_t i) { return ReadAt<uint32_t>(table, 8 + 4 * (uint64_t{buckets} + i)); };
    for (uint32_t bucket = 0; bucket < buckets; ++bucket) {
      uint32_t symbol = ReadAt<uint32_t>(table, 8 + 4 * uint64_t{bucket});
      for (uint32_t steps = 0; symbol != 0; ++steps) {
        if (symbol >= chains || steps > chains) return Refuse("a hash table that leads outside itself");
        symbol = chain(symbol);
      }
    }
    return chains;
  }

  Result<uint32_t> CountGnuHash(uint64_t address) const {
    std::span<const std::byte> head = HONE_TRY(Bytes(address, 16, PF_R, PF_W, "the GNU hash table"));
    uint32_t buckets = ReadAt<uint32_t>(head, 0), first = ReadAt<uint32_t>(head, 4);
    uint32_t bloom = ReadAt<uint32_t>(head, 8), shift = ReadAt<uint32_t>(head, 12);
    if (buckets == 0 || buckets > kMaxSymbols || first == 0 || first > kMaxSymbols || bloom == 0 || bloom > 64 ||
        (bloom & (bloom - 1)) != 0 || shift > 31)
      return Refuse("a malformed GNU hash table");
    uint64_t fixed = 16 + 8 * uint64_t{bloom} + 4 * uint64_t{buckets};
    std::span<const std::byte> table = HONE_TRY(Bytes(address, fixed, PF_R, PF_W, "the GNU hash table"));
    uint32_t count = first;
    for (uint32_t bucket = 0; bucket < buckets; ++bucket) {
      uint32_t symbol = ReadAt<uint32_t>(table, 16 + 8 * uint64_t{bloom} + 4 * uint64_t{bucket});
      if (symbol == 0) continue;
      if (symbol < first) return Refuse("a malformed GNU hash table");
      for (bool last = false; !last; ++symbol) {
        if (symbol >= kMaxSymbols) return Refuse("a GNU hash table that leads outside itself");
        std::span<const std::byte> link =
            HONE_TRY(Bytes(address + fixed + 4 * uint64_t{symbol - first}, 4, PF_R, PF_W, "the GNU hash table"));
        last = (ReadAt<uint32_t>(link, 0) & 1) != 0;
      }
      count = std::max(count, symbol);
    }
    return count;
  }

  Result<std::string_view> Name(uint32_t offset) const {
    std::span<const std::byte> strings = HONE_TRY(Bytes(*strtab_, *strsz_, PF_R, PF_W, "the string table"));
    if (offset >= strings.size()) return Refuse("a symbol's name lies outside the string table");
    const char* text = reinterpret_cast<const char*>(strings.data()) + offset;
    size_t length = ::strnlen(text, strings.size() - offset);
    if (length == strings.size() - offset) return Refuse("a symbol's name has no end");
    return std::string_view(text, length);
  }

  Result<void> ReadSymbols() {
    if (soname_) HONE_TRY(Name(static_cast<uint32_t>(std::min<uint64_t>(*soname_, UINT32_MAX))));
    std::span<const std::byte> table =
        HONE_TRY(Bytes(*symtab_, uint64_t{symbols_} * sizeof(Elf64_Sym), PF_R, PF_W, "the symbol table"));
    for (uint32_t i = 1; i < symbols_; ++i) {
      Elf64_Sym symbol = ReadAt<Elf64_Sym>(table, i * sizeof(Elf64_Sym));
      HONE_TRY(TakeSymbol(symbol, HONE_TRY(Name(symbol.st_name))));
    }
    return {};
  }

  Result<void> TakeSymbol(const Elf64_Sym& symbol, std::string_view name) {
    unsigned type = ELF64_ST_TYPE(symbol.st_info), binding = ELF64_ST_BIND(symbol.st_info);
    if (type == STT_GNU_IFUNC) return Refuse("{} is an IFUNC: code that runs when it is loaded", name);
    if (type == STT_TLS) return Refuse("{} is thread-local", name);
    if (symbol.st_shndx == SHN_UNDEF) return Refuse("it needs {} from elsewhere", name);
    if (symbol.st_shndx >= SHN_LORESERVE) return Refuse("{} lies in special section {:#x}", name, symbol.st_shndx);
    if (binding != STB_GLOBAL || ELF64_ST_VISIBILITY(symbol.st_other) != STV_DEFAULT)
      return Refuse("{} has binding {} and visibility {}", name, binding, ELF64_ST_VISIBILITY(symbol.st_other));
    if (name == kEntrySymbolName || name == kPackSymbolName) {
      if (type != STT_FUNC) return Refuse("{} is not a function", name);
      HONE_TRY(Bytes(symbol.st_value, std::max<uint64_t>(symbol.st_size, 1), PF_R | PF_X, PF_W, name));
      bool& seen = name == kEntrySymbolName ? has_entry_ : layout_.has_pack;
      if (seen) return Refuse("{} is exported twice", name);
      seen = true;
      entries_.push_back(symbol.st_value);
    } else if (name == kManifestSymbolName) {
      if (type != STT_OBJECT || symbol.st_size == 0) return Refuse("{} is not an object", name);
      if (!layout_.manifest.empty()) return Refuse("{} is exported twice", name);
      layout_.manifest = HONE_TRY(Bytes(symbol.st_value, symbol.st_size, PF_R, PF_W | PF_X, name));
    } else {
      return Refuse("it exports {}", name);
    }
    return {};
  }

  Result<void> CheckRelocations() {
    if (!rela_) return {};
    std::span<const std::byte> table = HONE_TRY(Bytes(*rela_, *rela_size_, PF_R, PF_W, "the relocation table"));
    if (rela_count_ && *rela_count_ > table.size() / sizeof(Elf64_Rela))
      return Refuse("{} relative relocations of {}", *rela_count_, table.size() / sizeof(Elf64_Rela));
    for (uint64_t at = 0; at < table.size(); at += sizeof(Elf64_Rela)) {
      Elf64_Rela relocation = ReadAt<Elf64_Rela>(table, at);
      if (ELF64_R_TYPE(relocation.r_info) != machine_->relative || ELF64_R_SYM(relocation.r_info) != 0)
        return Refuse("a relocation of type {}, wanted relative ones", ELF64_R_TYPE(relocation.r_info));
      if (relocation.r_offset % 8 != 0) return Refuse("a relocation at {:#x}", relocation.r_offset);
      HONE_TRY(Bytes(relocation.r_offset, 8, PF_R | PF_W, PF_X, "a relocation's place"));
      if (relocation.r_offset + 8 > dynamic_->p_vaddr && relocation.r_offset < dynamic_->p_vaddr + dynamic_->p_memsz)
        return Refuse("a relocation of the dynamic segment");
      if (relocation.r_addend < 0 || static_cast<uint64_t>(relocation.r_addend) > kMaxSpan)
        return Refuse("a relocation that points outside, to {:#x}", static_cast<uint64_t>(relocation.r_addend));
      entries_.push_back(static_cast<uint64_t>(relocation.r_addend));
    }
    return {};
  }

  // The rest of a segment's first and last page is mapped with it; only computed addresses lead there.
  Result<void> CheckExecutable() const {
    std::vector<CodeSegment> code;
    for (const Elf64_Phdr& load : loads_)
      if ((load.p_flags & PF_X) != 0) code.push_back({load.p_vaddr, bytes_.subspan(load.p_offset, load.p_filesz)});
    return CheckCode(machine_->elf, code, entries_);
  }

  std::span<const std::byte> bytes_;
  const bool other_machine_;
  const Machine* machine_ = nullptr;
  Elf64_Ehdr header_{};
  std::vector<Elf64_Phdr> loads_;  // ascending, apart by pages, within kMaxSpan
  std::optional<Elf64_Phdr> phdr_, dynamic_, relro_;
  std::optional<uint64_t> symtab_, strtab_, strsz_, symbol_size_, sysv_hash_, gnu_hash_, rela_, rela_size_, rela_entry_,
      rela_count_, soname_, flags_, flags_1_;
  uint32_t symbols_ = 0;
  std::vector<uint64_t> entries_;  // addresses that symbols and relocations name
  bool has_entry_ = false;
  ArtifactLayout layout_;
};

}  // namespace

Result<ArtifactLayout> CheckArtifact(std::span<const std::byte> bytes, const ArtifactExpectations& expectations) {
  if (expectations.size != 0 && bytes.size() != expectations.size)
    return Error{ErrorKind::kInvalid, fmt::format("artifact has {} bytes, wanted {}", bytes.size(), expectations.size),
                 ""};
  if (!expectations.digest.empty()) {
    Digest256 digest = Hash256(bytes);
    if (expectations.digest != AsText(std::as_bytes(std::span(digest))))
      return Error{ErrorKind::kInvalid, "artifact's digest differs from the one it was announced with", ""};
  }
  return Image(bytes, expectations.other_machine).Check();
}

}  // namespace hone
