// Files: whole-file reads with a limit, atomic writes, and directories that
// nobody else can tamper with.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace hone {

// "cannot open: Permission denied" with the path as the place; kNotFound for ENOENT, kLimit for ENOSPC and EDQUOT, else
// kIo.
Error ErrnoError(int code, std::string_view what, std::string_view path = {});

// Whole contents. kLimit if longer than `limit` bytes; kIo, kNotFound.
Result<std::string> ReadFile(const std::string& path, size_t limit);
Result<std::string> ReadAll(int fd, size_t limit);
Result<void> WriteAll(int fd, std::string_view bytes);

// Writes through a temporary file in the same directory and renames it over `path`: readers see the old or the new
// contents, never a part. Synced, file and directory, before it returns.
Result<void> WriteFileAtomically(const std::string& path, std::string_view bytes, unsigned mode = 0600);

// The names in a directory but . and .., sorted. kNotFound, kIo; never throws, as std::filesystem's iterators do where
// a directory goes away while it is read.
Result<std::vector<std::string>> ListDirectory(const std::string& path);

// Creates the directory and its missing parents, each with `mode`. Nothing happens if it is there.
Result<void> CreateDirectories(const std::string& path, unsigned mode = 0700);

// Sum of the sizes of the regular files below a path, as allocated on disk; 0 for what is not there. `counts`: of files
// with such names alone.
using CountsFile = std::function<bool(std::string_view name)>;
uint64_t DiskUsage(const std::string& path, const CountsFile& counts = nullptr);

// "nfs", "cifs" … if the file system of that path is another machine's; "" if it is not, or is not known.
std::string_view NetworkFileSystem(const std::string& path);

// Whose a directory or file has to be.
enum class Owner : uint8_t { kSelf, kSelfOrRoot };

// Opens a directory whose every part no one but this user and root can change: each part is a directory (links are not
// followed), owned by this user or root, and writable by its owner alone; a root-owned sticky folder (/tmp) may be on
// the way, since what this user owns in it cannot be replaced by others. In a namespace of users without root (a user
// unit's PrivateUsers=) root's files seem to be nobody's, as everyone else's do: nobody's are then taken for root's
// above $HOME and $XDG_RUNTIME_DIR, in /etc and in /usr, where the account would be lost were they not. The last part
// is `owner`'s. kInvalid names the part, what is wrong with it and what to do; kNotFound.
Result<UniqueFd> OpenPrivateDirectory(const std::string& path, Owner owner = Owner::kSelf);

// Opens a plain file in a directory opened like that; no link, `owner`'s, and writable by its owner alone. `flags` are
// open's, new files get mode 0600. `path` is for messages. kInvalid as above, kNotFound, kIo.
Result<UniqueFd> OpenPrivateFile(int directory, const std::string& name, int flags, Owner owner,
                                 const std::string& path);

// The whole contents of such a file in such a directory, both this user's or root's. kLimit if it is too long.
Result<std::string> ReadPrivateFile(const std::string& path, size_t limit);

}  // namespace hone
