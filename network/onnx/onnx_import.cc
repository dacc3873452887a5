// The one file that knows protobuf and ONNX's messages.
#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/stubs/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <climits>
#include <cstring>
#include <functional>
#include <optional>
#include <set>

#include "base/file.h"
#include "ir/graph/dtype_traits.h"
#include "network/onnx/captured.h"
#include "network/onnx/external_data.h"
#include "network/onnx/inline_functions.h"
#include "network/onnx/large_tensors.h"
#include "network/onnx/mark_small_types.h"
#include "network/onnx/model_file.h"
#include "network/onnx/model_in_place.h"
#include "network/onnx/onnx_model.h"
#include "network/onnx/resolve_sequences.h"
#include "network/onnx/small_types.h"
#include "network/onnx/wire_format.h"
#include "onnx.pb.h"

namespace hone {
namespace {

using OnnxElement = onnx::TensorProto::DataType;

// protobuf counts bytes in an int.
constexpr uint64_t kMostBytes = INT_MAX;
constexpr size_t kMostNodes = 200'000;

// Fields of ONNX's messages that are newer than the .proto file: the overload of a NodeProto, and of a FunctionProto
// its overload and its attributes with their defaults.
constexpr uint64_t kNodeOverload = 8, kFunctionOverload = 13, kFunctionDefault = 11;

// As ONNX spells it: "float", "bfloat16", "string".
std::string TypeName(int onnx) {
  if (const SmallType* small = SmallTypeOf(onnx); small != nullptr) return std::string(small->name);
  if (!onnx::TensorProto::DataType_IsValid(onnx)) return fmt::format("element type {}", onnx);
  std::string name = onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(onnx));
  for (char& letter : name) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return name;
}

Error Corrupt(std::string message, std::string where) {
  return Error{ErrorKind::kCorrupt, std::move(message), std::move(where)};
}

// Elements in their typed fields: one protobuf number each.
template <typename To, typename Field>
std::string Packed(const Field& field) {
  std::string bytes(static_cast<size_t>(field.size()) * sizeof(To), '\0');
  size_t at = 0;
  for (auto value : field) {
    auto to = static_cast<To>(value);
    std::memcpy(bytes.data() + at, &to, sizeof(To));
    at += sizeof(To);
  }
  return bytes;
}

Result<uint64_t> ExternalNumber(const std::string& text, const std::string& key, const std::string& where) {
  uint64_t value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) {
    return Corrupt(fmt::format("{} of its external data is \"{}\", wanted a number of bytes", key, text), where);
  }
  return value;
}

Error TooLarge(const OnnxSource& source) {
  return Error{ErrorKind::kLimit, "with its weights it has 2 GiB or more, which protobuf cannot write", source.path};
}

class Reader {
 public:
  // `cut`: elements that are not in the message any more, by the initialiser's position (large_tensors.h).
  Reader(const OnnxSource& source, const std::map<int, std::string_view>& cut) : source_(source), cut_(cut) {}

  Result<OnnxModel> Model(onnx::ModelProto& proto) {
    OnnxModel model;
    model.producer = proto.producer_name();
    if (!proto.has_graph()) return Corrupt("there is no graph in it, wanted an ONNX model", source_.path);
    const bool has_none = std::all_of(proto.graph().node().begin(), proto.graph().node().end(),
                                      [](const auto& node) { return !IsOfOnnx(node.domain()); });
    model.opset = HONE_TRY(Opset(proto.opset_import(), has_none));
    onnx::GraphProto& graph = *proto.mutable_graph();
    if (static_cast<size_t>(graph.node_size()) > kMostNodes) {
      return Error{ErrorKind::kLimit, fmt::format("it has {} nodes, hone's limit is {}", graph.node_size(), kMostNodes),
                   source_.path};
    }
    if (graph.sparse_initializer_size() > 0) {
      return Error{ErrorKind::kUnsupported, "it has sparse initialisers; export it with dense ones", source_.path};
    }
    for (int i = 0; i < graph.initializer_size(); ++i) {
      onnx::TensorProto& tensor = *graph.mutable_initializer(i);
      std::string where = Where("initialiser " + tensor.name());
      const auto cut = cut_.find(i);
      model.initializers.push_back({tensor.name(),
                                    HONE_TRY(Tensor(tensor, where, cut == cut_.end() ? nullptr : &cut->second)),
                                    SmallTypeOf(tensor.data_type())});
    }
    for (onnx::NodeProto& node : *graph.mutable_node()) model.nodes.push_back(HONE_TRY(Node(node)));
    std::vector<OnnxFunction> functions;
    for (onnx::FunctionProto& function : *proto.mutable_functions())
      functions.push_back(HONE_TRY(Function(function, model.opset)));
    HONE_TRY(InlineFunctions(model.nodes, functions, source_.path));
    for (const auto& value : graph.input()) model.inputs.push_back(Value(value));
    MarkSmallTypes(model);
    for (const auto& value : graph.output()) model.outputs.push_back(Value(value));
    for (const auto& value : graph.value_info()) model.values.push_back(Value(value));
    return model;
  }

  // Elements in files beside the model become its own.
  Result<void> TakeIn(onnx::GraphProto& graph) {
    for (onnx::TensorProto& tensor : *graph.mutable_initializer()) HONE_TRY(TakeIn(tensor));
    for (onnx::NodeProto& node : *graph.mutable_node()) {
      for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.has_t()) HONE_TRY(TakeIn(*attribute.mutable_t()));
        if (attribute.has_g()) HONE_TRY(TakeIn(*attribute.mutable_g()));
      }
    }
    return {};
  }

  // Of the elements that were cut: the model's tensors have none until these are made.
  TensorCopies TakeCopies() { return std::move(copies_); }

 private:
  std::string Where(const std::string& what) const { return source_.path + ": " + what; }

  static bool IsOfOnnx(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }
  // The opset of ONNX's own operators. Models of other domains' operators alone need not name one.
  Result<int64_t> Opset(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& sets, bool has_none) const {
    int64_t opset = 0;
    for (const onnx::OperatorSetIdProto& set : sets)
      if (IsOfOnnx(set.domain())) opset = set.version();
    if (opset == 0 && has_none) return kNewestOpset;
    if (opset >= kOldestOpset && opset <= kNewestOpset) return opset;
    return Error{ErrorKind::kUnsupported,
                 fmt::format("its operators are of opset {}, wanted {} to {}; export it with opset_version=18", opset,
                             kOldestOpset, kNewestOpset),
                 source_.path};
  }

  static OnnxValue Value(const onnx::ValueInfoProto& proto) {
    OnnxValue value;
    value.name = proto.name();
    value.type.is_tensor = proto.type().has_tensor_type();
    const onnx::TypeProto::Tensor& tensor = proto.type().tensor_type();
    value.type.type_name = TypeName(tensor.elem_type());
    if (const std::optional<DType> dtype = ElementTypeOf(tensor.elem_type())) {
      value.type.has_dtype = true;
      value.type.dtype = *dtype;
    } else if ((value.type.small = SmallTypeOf(tensor.elem_type())) != nullptr) {
      value.type.has_dtype = true;
      value.type.dtype = value.type.small->held_as;
    }
    value.type.has_shape = tensor.has_shape();
    for (const onnx::TensorShapeProto::Dimension& dimension : tensor.shape().dim()) {
      OnnxDimension out;
      if (dimension.has_dim_value()) out.value = dimension.dim_value();
      out.symbol = dimension.dim_param();
      value.type.dimensions.push_back(std::move(out));
    }
    return value;
  }

  Result<TensorBytes> External(const onnx::TensorProto& proto, uint64_t wanted, const std::string& where) const {
    std::string location;
    uint64_t offset = 0, length = wanted;
    for (const onnx::StringStringEntryProto& entry : proto.external_data()) {
      if (entry.key() == "location") location = entry.value();
      if (entry.key() == "offset") offset = HONE_TRY(ExternalNumber(entry.value(), "the offset", where));
      if (entry.key() == "length") length = HONE_TRY(ExternalNumber(entry.value(), "the length", where));
    }
    UniqueFd file = HONE_TRY(OpenExternalData(source_.folder, location, where));
    if (length != wanted) {
      return Corrupt(fmt::format("its external data has {} bytes, its shape wants {}", length, wanted), where);
    }
    struct stat status{};
    if (fstat(file.get(), &status) != 0) return ErrnoError(errno, "cannot look at its external data", location);
    auto size = static_cast<uint64_t>(status.st_size);
    if (offset > size || wanted > size - offset) {
      return Corrupt(fmt::format("its external data is bytes {} to {} of {}, which has {}", offset, offset + wanted,
                                 location, size),
                     where);
    }
    FreshBytes read = HONE_TRY(MakeBytes(wanted));
    for (size_t at = 0; at < wanted;) {
      ssize_t got = pread(file.get(), read.at + at, wanted - at, static_cast<off_t>(offset + at));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return ErrnoError(got == 0 ? EIO : errno, "cannot read external data", location);
      at += static_cast<size_t>(got);
    }
    return std::move(read.bytes);
  }

  // Elements as memory has them; raw bytes are taken, not copied.
  Result<TensorBytes> Stored(onnx::TensorProto& proto, DType dtype, uint64_t wanted, const std::string& where) const {
    if (proto.data_location() == onnx::TensorProto::EXTERNAL) return External(proto, wanted, where);
    if (proto.has_raw_data()) return std::move(*proto.mutable_raw_data());
    switch (proto.data_type()) {
      case onnx::TensorProto::FLOAT: return Packed<float>(proto.float_data());
      case onnx::TensorProto::DOUBLE: return Packed<double>(proto.double_data());
      case onnx::TensorProto::INT64: return Packed<int64_t>(proto.int64_data());
      case onnx::TensorProto::UINT32: return Packed<uint32_t>(proto.uint64_data());
      case onnx::TensorProto::UINT64: return Packed<uint64_t>(proto.uint64_data());
      default: break;
    }
    if (ByteSize(dtype) == 1) return Packed<uint8_t>(proto.int32_data());
    if (ByteSize(dtype) == 2) return Packed<uint16_t>(proto.int32_data());
    return Packed<int32_t>(proto.int32_data());
  }

  static uint64_t BytesOf(const Shape& shape, const SmallType* small, DType dtype) {
    const auto count = static_cast<uint64_t>(CountOf(shape));
    return small != nullptr ? PackedBytes(*small, count) : count * static_cast<uint64_t>(ByteSize(dtype));
  }

  Result<void> TakeIn(onnx::TensorProto& proto) {
    if (proto.data_location() != onnx::TensorProto::EXTERNAL) return {};
    const std::string where = Where("initialiser " + proto.name());
    const SmallType* small = SmallTypeOf(proto.data_type());
    const std::optional<DType> dtype = ElementTypeOf(proto.data_type());
    const Shape shape(proto.dims().begin(), proto.dims().end());
    if ((small == nullptr && !dtype) || !CheckShape(shape)) return Corrupt("its type or shape is not known", where);
    const uint64_t wanted = BytesOf(shape, small, dtype.value_or(DType::kU8));
    if ((taken_in_ += wanted) > kMostBytes) return TooLarge(source_);
    const TensorBytes bytes = HONE_TRY(External(proto, wanted, where));
    proto.set_raw_data(bytes.view().data(), bytes.view().size());
    proto.clear_external_data();
    proto.clear_data_location();
    return {};
  }

  // `cut`: its elements, which are copied at the end.
  Result<std::shared_ptr<HostTensor>> Tensor(onnx::TensorProto& proto, const std::string& where,
                                             const std::string_view* cut = nullptr) {
    const SmallType* small = SmallTypeOf(proto.data_type());
    const std::optional<DType> dtype =
        small != nullptr ? std::optional(small->held_as) : ElementTypeOf(proto.data_type());
    if (!dtype) {
      return Error{ErrorKind::kUnsupported,
                   fmt::format("it holds {}, wanted floats, integers or truth values", TypeName(proto.data_type())),
                   where};
    }
    if (proto.has_segment()) return Error{ErrorKind::kUnsupported, "it is stored in segments", where};
    auto tensor = std::make_shared<HostTensor>();
    tensor->dtype = *dtype;
    tensor->shape.assign(proto.dims().begin(), proto.dims().end());
    if (Result<void> fits = CheckShape(tensor->shape); !fits) {
      fits.error().where = where;
      return fits.error();
    }
    const uint64_t wanted = BytesOf(tensor->shape, small, *dtype);
    const bool is_cut = cut != nullptr && proto.data_location() != onnx::TensorProto::EXTERNAL;
    TensorBytes bytes =
        is_cut ? TensorBytes() : HONE_TRY(Stored(proto, small != nullptr ? DType::kU8 : *dtype, wanted, where));
    const std::string_view elements = is_cut ? *cut : bytes.view();
    if (elements.size() != wanted) {
      return Corrupt(fmt::format("it has {} bytes, its shape {} of {} wants {}", elements.size(),
                                 ShapeText(tensor->shape), TypeName(proto.data_type()), wanted),
                     where);
    }
    if (small != nullptr) {
      tensor->data = Unpacked(*small, elements, CountOf(tensor->shape));
    } else if (is_cut) {
      copies_.Add(tensor, elements);
    } else {
      tensor->data = std::move(bytes);
    }
    return tensor;
  }

  Result<OnnxNode> Node(onnx::NodeProto& proto) {
    OnnxNode node;
    node.name = proto.name();
    if (node.name.empty() && proto.output_size() > 0) node.name = proto.output(0);
    node.domain = IsOfOnnx(proto.domain()) ? "" : proto.domain();
    node.op = proto.op_type();
    node.inputs.assign(proto.input().begin(), proto.input().end());
    node.outputs.assign(proto.output().begin(), proto.output().end());
    for (onnx::AttributeProto& attribute : *proto.mutable_attribute()) {
      node.attributes.push_back(HONE_TRY(Attribute(attribute, Where("node " + node.name))));
    }
    node.captured = CapturedBy(node);
    for (std::string_view overload : BytesFieldsOf(proto.unknown_fields(), kNodeOverload)) node.overload = overload;
    return node;
  }

  Result<OnnxFunction> Function(onnx::FunctionProto& proto, int64_t opset) {
    OnnxFunction function;
    function.domain = IsOfOnnx(proto.domain()) ? "" : proto.domain();
    function.name = proto.name();
    const std::string where = Where("function " + function.name);
    function.opset = proto.opset_import().empty() ? opset : HONE_TRY(Opset(proto.opset_import(), true));
    for (std::string_view overload : BytesFieldsOf(proto.unknown_fields(), kFunctionOverload))
      function.overload = overload;
    function.inputs.assign(proto.input().begin(), proto.input().end());
    function.outputs.assign(proto.output().begin(), proto.output().end());
    for (std::string_view bytes : BytesFieldsOf(proto.unknown_fields(), kFunctionDefault)) {
      onnx::AttributeProto attribute;
      if (!attribute.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
        return Corrupt("one of its attributes does not parse", where);
      function.defaults.push_back(HONE_TRY(Attribute(attribute, where)));
    }
    for (onnx::NodeProto& node : *proto.mutable_node()) function.nodes.push_back(HONE_TRY(Node(node)));
    return function;
  }

  Result<std::shared_ptr<const OnnxBody>> Body(onnx::GraphProto& proto, const std::string& where) {
    if (static_cast<size_t>(proto.node_size()) > kMostNodes || proto.sparse_initializer_size() > 0)
      return Error{ErrorKind::kUnsupported, "its body has too many nodes, or sparse initialisers", where};
    auto body = std::make_shared<OnnxBody>();
    for (onnx::TensorProto& tensor : *proto.mutable_initializer())
      body->initializers.push_back({tensor.name(), HONE_TRY(Tensor(tensor, where + ", initialiser " + tensor.name())),
                                    SmallTypeOf(tensor.data_type())});
    for (onnx::NodeProto& node : *proto.mutable_node()) body->nodes.push_back(HONE_TRY(Node(node)));
    for (const auto& value : proto.input()) body->inputs.push_back(value.name());
    for (const auto& value : proto.output()) {
      body->outputs.push_back(value.name());
      body->declared.push_back(Value(value));
    }
    return body;
  }

  // Files of the first version do not say it: it is that of the field that is there.
  static onnx::AttributeProto::AttributeType TypeOf(const onnx::AttributeProto& proto) {
    using Proto = onnx::AttributeProto;
    if (proto.has_type() && proto.type() != Proto::UNDEFINED) return proto.type();
    return proto.has_i()             ? Proto::INT
           : proto.has_f()           ? Proto::FLOAT
           : proto.has_s()           ? Proto::STRING
           : proto.has_t()           ? Proto::TENSOR
           : proto.has_g()           ? Proto::GRAPH
           : proto.ints_size() > 0   ? Proto::INTS
           : proto.floats_size() > 0 ? Proto::FLOATS
                                     : Proto::STRINGS;
  }

  Result<OnnxAttribute> Attribute(onnx::AttributeProto& proto, const std::string& where) {
    using Kind = OnnxAttribute::Kind;
    OnnxAttribute attribute;
    attribute.name = proto.name();
    attribute.reference = proto.ref_attr_name();
    if (!attribute.reference.empty()) return attribute;
    switch (TypeOf(proto)) {
      case onnx::AttributeProto::INT:
        attribute.kind = Kind::kInt;
        attribute.whole = proto.i();
        break;
      case onnx::AttributeProto::FLOAT:
        attribute.kind = Kind::kFloat;
        attribute.real = proto.f();
        break;
      case onnx::AttributeProto::STRING:
        attribute.kind = Kind::kText;
        attribute.text = proto.s();
        break;
      case onnx::AttributeProto::INTS:
        attribute.kind = Kind::kInts;
        attribute.wholes.assign(proto.ints().begin(), proto.ints().end());
        break;
      case onnx::AttributeProto::FLOATS:
        attribute.kind = Kind::kFloats;
        attribute.reals.assign(proto.floats().begin(), proto.floats().end());
        break;
      case onnx::AttributeProto::STRINGS:
        attribute.kind = Kind::kTexts;
        attribute.texts.assign(proto.strings().begin(), proto.strings().end());
        break;
      case onnx::AttributeProto::TENSOR:
        attribute.kind = Kind::kTensor;
        attribute.tensor = HONE_TRY(Tensor(*proto.mutable_t(), where + ", attribute " + proto.name()));
        attribute.small = SmallTypeOf(proto.t().data_type());
        break;
      case onnx::AttributeProto::GRAPH:
        attribute.kind = Kind::kGraph;
        attribute.body = HONE_TRY(Body(*proto.mutable_g(), where));
        break;
      default: break;  // lists of graphs …: whoever wants them says so
    }
    return attribute;
  }

  const OnnxSource& source_;
  const std::map<int, std::string_view>& cut_;
  TensorCopies copies_;
  uint64_t taken_in_ = 0;  // bytes
};

Result<void> ParseProto(std::string_view bytes, const OnnxSource& source, onnx::ModelProto& proto) {
  if (bytes.size() > kMostBytes) {
    return Error{ErrorKind::kLimit,
                 fmt::format("it has {} bytes, and protobuf reads files below 2 GiB; export it with external data",
                             bytes.size()),
                 source.path};
  }
  google::protobuf::LogSilencer silence;  // its words on standard error; ours say where
  if (bytes.empty() || !proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Corrupt(
        fmt::format("it does not parse as an ONNX model ({} bytes): truncated, another kind of file, or bodies within "
                    "bodies, more than 30 deep",
                    bytes.size()),
        source.path);
  }
  return {};
}

// Large elements of the model are copied when `take` is done with them.
Result<OnnxModel> Parse(std::string_view bytes, const OnnxSource& source,
                        const std::function<Result<void>(TensorCopies)>& take) {
  onnx::ModelProto proto;
  const std::optional<CutModel> cut = bytes.size() > kMostBytes ? std::nullopt : CutLargeTensors(bytes);
  HONE_TRY(ParseProto(cut ? cut->rest : bytes, source, proto));
  const std::map<int, std::string_view> elements = cut ? cut->elements : std::map<int, std::string_view>();
  Reader reader(source, elements);
  OnnxModel model = HONE_TRY(reader.Model(proto));
  if (Result<void> taken = take(reader.TakeCopies()); !taken) return std::move(taken).error().Context(source.path);
  ResolveSequences(model);
  return model;
}

OnnxSource SourceOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return {path, slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash)};
}

}  // namespace

std::optional<DType> ElementTypeOf(int64_t onnx) {
  for (const DTypeTraits& row : DTypeTable())
    if (row.bytes > 0 && row.onnx == onnx) return row.type;
  return std::nullopt;
}

Result<OnnxModel> ParseOnnx(std::string_view bytes, const OnnxSource& source) {
  return Parse(bytes, source, [](TensorCopies copies) { return copies.Make(); });
}

Result<OnnxModel> ReadOnnx(const std::string& path) {
  const std::shared_ptr<ModelFile> file = HONE_TRY(ModelFile::Open(path));
  return ParseOnnx(file->bytes(), SourceOf(path));
}

Result<ModelInPlace> ReadOnnxInPlace(const std::string& path) {
  ModelInPlace read;
  read.file = HONE_TRY(ModelFile::Open(path));
  read.model = HONE_TRY(Parse(read.file->bytes(), SourceOf(path), [&](TensorCopies copies) {
    read.tensors = std::move(copies);
    return read.tensors.MakeSmall(read.file);
  }));
  return read;
}

Result<std::string> WithWeights(const std::string& path, const std::vector<OnnxTensor>& tensors) {
  const std::shared_ptr<ModelFile> file = HONE_TRY(ModelFile::Open(path));
  const OnnxSource source = SourceOf(path);
  onnx::ModelProto proto;
  HONE_TRY(ParseProto(file->bytes(), source, proto));
  onnx::GraphProto& graph = *proto.mutable_graph();
  HONE_TRY(Reader(source, {}).TakeIn(graph));
  std::set<std::string> names;
  for (const OnnxTensor& tensor : tensors) {
    names.insert(tensor.name);
    onnx::TensorProto& added = *graph.add_initializer();
    added.set_name(tensor.name);
    added.set_data_type(TraitsOf(tensor.tensor->dtype).onnx);
    for (int64_t dimension : tensor.tensor->shape) added.add_dims(dimension);
    added.set_raw_data(tensor.tensor->data.data(), tensor.tensor->data.size());
  }
  google::protobuf::RepeatedPtrField<onnx::ValueInfoProto> kept;
  for (onnx::ValueInfoProto& input : *graph.mutable_input()) {
    if (names.erase(input.name()) == 0) kept.Add(std::move(input));
  }
  graph.mutable_input()->Swap(&kept);
  if (!names.empty()) return Error{ErrorKind::kInvalid, "it has no input \"" + *names.begin() + "\"", source.path};
  if (proto.ByteSizeLong() > kMostBytes) return TooLarge(source);
  return proto.SerializeAsString();
}

}  // namespace hone
