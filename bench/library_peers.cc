// OpenBLAS computes matrix products, 1×1 convolutions among them. oneDNN computes nearly everything, in up to four
// ways: from and to plain layouts; in layouts of its own choice, with the reorders from and to plain ones counted, or
// not; and with Winograd's algorithm. Weights are reordered ahead of time wherever oneDNN prefers that.
#include "bench/library_peers.h"

#include <cblas.h>
#include <dlfcn.h>

#include <cstdlib>
#include <dnnl.hpp>
#include <memory>
#include <optional>

namespace hone {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using Tag = memory::format_tag;

constexpr auto kF32 = memory::data_type::f32;
constexpr auto kInference = dnnl::prop_kind::forward_inference;

struct Engine {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

Engine& TheEngine() {
  static Engine engine;
  return engine;
}

std::shared_ptr<float> Allocate(int64_t count) {
  size_t bytes = (static_cast<size_t>(count) * sizeof(float) + 63) / 64 * 64;
  auto* data = static_cast<float*>(std::aligned_alloc(64, std::max<size_t>(64, bytes)));
  if (data == nullptr) std::abort();
  return {data, std::free};
}

int64_t Count(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  return count;
}

// Dense row-major, whatever the rank.
memory::desc Plain(const memory::dims& dims) {
  memory::dims strides(dims.size(), 1);
  for (size_t d = dims.size(); d-- > 1;) strides[d - 1] = strides[d] * dims[d];
  return {dims, kF32, strides};
}
memory::desc Any(const memory::dims& dims) { return {dims, kF32, Tag::any}; }

memory View(const memory::desc& desc, const float* data) {
  return {desc, TheEngine().engine, const_cast<float*>(data)};
}

// In the layout that is wanted: the memory itself if it is there already.
memory Reordered(memory from, const memory::desc& wanted) {
  if (from.get_desc() == wanted) return from;
  memory to(wanted, TheEngine().engine);
  dnnl::reorder(from, to).execute(TheEngine().stream, from, to);
  TheEngine().stream.wait();
  return to;
}

// The epilogues after a bias as oneDNN's post-ops. Full operands of the result's shape have `layout`.
struct PostOps {
  dnnl::primitive_attr attributes;
  std::vector<std::pair<int, memory>> operands;  // argument, what it is
};
std::optional<PostOps> MakePostOps(const Problem& problem, const memory::dims& result, const memory::desc& layout) {
  const bool has_bias = !problem.epilogues.empty() && problem.epilogues[0] == "bias";
  size_t operand = problem.inputs.size();
  for (size_t e = has_bias; e < problem.epilogues.size(); ++e)
    operand -= problem.epilogues[e] == "add" || problem.epilogues[e] == "mul";
  PostOps made;
  dnnl::post_ops ops;
  for (size_t e = has_bias; e < problem.epilogues.size(); ++e) {
    const std::string& name = problem.epilogues[e];
    if (name == "add" || name == "mul") {
      memory plain = View(Plain(result), problem.inputs[operand]);
      if (Count(problem.shapes[operand]) != Count(result)) return std::nullopt;
      ops.append_binary(name == "add" ? algorithm::binary_add : algorithm::binary_mul, layout);
      made.operands.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(ops.len() - 1) | DNNL_ARG_SRC_1,
                                 Reordered(plain, layout));
      ++operand;
    } else if (name == "relu") {
      ops.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
    } else if (name == "relu6") {
      ops.append_eltwise(1, algorithm::eltwise_clip, 0, 6);
    } else if (name == "silu") {
      ops.append_eltwise(1, algorithm::eltwise_swish, 1, 0);
    } else if (name == "sigmoid") {
      ops.append_eltwise(1, algorithm::eltwise_logistic, 0, 0);
    } else if (name == "tanh") {
      ops.append_eltwise(1, algorithm::eltwise_tanh, 0, 0);
    } else if (name == "gelu") {
      ops.append_eltwise(1, algorithm::eltwise_gelu_erf, 0, 0);
    } else {
      return std::nullopt;
    }
  }
  made.attributes.set_post_ops(ops);
  return made;
}

bool HasBias(const Problem& problem) { return !problem.epilogues.empty() && problem.epilogues[0] == "bias"; }

// A primitive with its arguments, from plain operands to a plain result of its own. `count_reorders`: those of the
// input and the result, where the primitive wants other layouts, are part of a call.
Peer MakePeer(std::string name, PeerKind kind, dnnl::primitive primitive, std::unordered_map<int, memory> arguments,
              memory source, const memory::desc& wanted_source, const memory::dims& result,
              const memory::desc& wanted_result, bool count_reorders) {
  dnnl::engine& engine = TheEngine().engine;
  dnnl::stream& stream = TheEngine().stream;
  std::shared_ptr<float> data = Allocate(Count(result));
  memory plain_result = View(Plain(result), data.get());
  const bool is_source_moved = source.get_desc() != wanted_source;
  const bool is_result_moved = plain_result.get_desc() != wanted_result;
  memory inner_source = is_source_moved ? memory(wanted_source, engine) : source;
  memory inner_result = is_result_moved ? memory(wanted_result, engine) : plain_result;
  arguments[DNNL_ARG_SRC] = inner_source;
  arguments[DNNL_ARG_DST] = inner_result;
  std::function<void()> before, after;
  if (is_source_moved)
    before = [reorder = dnnl::reorder(source, inner_source), source, inner_source, &stream]() mutable {
      reorder.execute(stream, source, inner_source);
    };
  if (is_result_moved)
    after = [reorder = dnnl::reorder(inner_result, plain_result), inner_result, plain_result, &stream]() mutable {
      reorder.execute(stream, inner_result, plain_result);
    };
  Peer peer;
  peer.name = std::move(name);
  peer.library = "oneDNN";
  peer.kind = kind;
  peer.result = data.get();
  auto run = [primitive, arguments, &stream] { primitive.execute(stream, arguments); };
  if (count_reorders) {
    peer.call = [before, run, after, data, &stream] {
      if (before) before();
      run();
      if (after) after();
      stream.wait();
    };
  } else {
    if (before) before();
    stream.wait();
    peer.call = [run, data, &stream] {
      run();
      stream.wait();
    };
    peer.finish = [after, &stream] {
      if (after) after();
      stream.wait();
    };
  }
  return peer;
}

// ---- what oneDNN computes

void AddConvolutions(const Problem& problem, std::vector<Peer>& peers) {
  const memory::dims x = problem.shapes[0], w = problem.shapes[1], y = problem.shapes.back();
  const int64_t groups = problem.name == "depthwise_conv2d" ? x[1] : problem.At("groups", 1);
  const memory::dims weights = groups == 1 ? w : memory::dims{groups, w[0] / groups, w[1], w[2], w[3]};
  const int64_t stride = problem.At("stride", 1), pad = problem.At("pad", 0), dilation = problem.At("dilation", 1);
  const memory::dims strides{stride, stride}, dilates{dilation - 1, dilation - 1}, begin{pad, pad};
  memory::dims end;
  for (size_t d : {2, 3}) end.push_back((y[d] - 1) * stride + (w[d] - 1) * dilation + 1 - x[d] - pad);
  auto add = [&](const std::string& name, PeerKind kind, algorithm how, bool is_plain, bool count_reorders) {
    auto describe = [&](const dnnl::primitive_attr& attributes) {
      memory::desc source = is_plain ? Plain(x) : Any(x), result = is_plain ? Plain(y) : Any(y);
      dnnl::convolution_forward::desc desc =
          HasBias(problem) ? dnnl::convolution_forward::desc(kInference, how, source, Any(weights), Plain({y[1]}),
                                                             result, strides, dilates, begin, end)
                           : dnnl::convolution_forward::desc(kInference, how, source, Any(weights), result, strides,
                                                             dilates, begin, end);
      return dnnl::convolution_forward::primitive_desc(desc, attributes, TheEngine().engine);
    };
    try {
      // Twice, since operands of post-ops take the result's layout, and only the first tells it.
      std::optional<PostOps> post = MakePostOps(problem, y, describe({}).dst_desc());
      if (!post) return;
      auto chosen = describe(post->attributes);
      std::unordered_map<int, memory> arguments(post->operands.begin(), post->operands.end());
      arguments[DNNL_ARG_WEIGHTS] = Reordered(View(Plain(weights), problem.inputs[1]), chosen.weights_desc());
      if (HasBias(problem)) arguments[DNNL_ARG_BIAS] = View(Plain({y[1]}), problem.inputs[2]);
      peers.push_back(MakePeer(name, kind, dnnl::convolution_forward(chosen), std::move(arguments),
                               View(Plain(x), problem.inputs[0]), chosen.src_desc(), y, chosen.dst_desc(),
                               count_reorders));
    } catch (const dnnl::error&) {
      // Not with these layouts, or not this algorithm.
    }
  };
  add("oneDNN plain", PeerKind::kSame, algorithm::convolution_direct, true, true);
  add("oneDNN reordering", PeerKind::kSame, algorithm::convolution_direct, false, true);
  add("oneDNN blocked", PeerKind::kBlocked, algorithm::convolution_direct, false, false);
  add("oneDNN Winograd", PeerKind::kRelaxed, algorithm::convolution_winograd, false, true);
}

void AddMatrixProducts(const Problem& problem, std::vector<Peer>& peers) {
  const memory::dims x = problem.shapes[0], w = problem.shapes[1], y = problem.shapes.back();
  const bool is_dense = problem.name == "dense";
  // dense has its weights as N×K: the same numbers as a K×N matrix with other strides.
  memory::dims weights = w;
  memory::desc given = Plain(w);
  if (is_dense) {
    weights = {w[1], w[0]};
    given = memory::desc(weights, kF32, memory::dims{1, w[1]});
  }
  memory::dims bias(y.size(), 1);
  bias.back() = y.back();
  const bool is_const = problem.At("const", 0) == 1;
  auto add = [&](const std::string& name, bool is_packed) {
    try {
      std::optional<PostOps> post = MakePostOps(problem, y, Plain(y));
      if (!post) return;
      memory::desc wanted = is_packed ? Any(weights) : given;
      auto desc = HasBias(problem) ? dnnl::matmul::desc(Plain(x), wanted, Plain(bias), Plain(y))
                                   : dnnl::matmul::desc(Plain(x), wanted, Plain(y));
      dnnl::matmul::primitive_desc chosen(desc, post->attributes, TheEngine().engine);
      std::unordered_map<int, memory> arguments(post->operands.begin(), post->operands.end());
      arguments[DNNL_ARG_WEIGHTS] = Reordered(View(given, problem.inputs[1]), chosen.weights_desc());
      if (HasBias(problem)) arguments[DNNL_ARG_BIAS] = View(Plain(bias), problem.inputs[2]);
      peers.push_back(MakePeer(name, PeerKind::kSame, dnnl::matmul(chosen), std::move(arguments),
                               View(Plain(x), problem.inputs[0]), Plain(x), y, Plain(y), true));
    } catch (const dnnl::error&) {}
  };
  add("oneDNN matmul", false);
  if (is_const) add("oneDNN matmul packed", true);
  if (!is_dense || !is_const) return;
  auto add_inner_product = [&](const std::string& name, PeerKind kind, bool is_plain) {
    try {
      auto describe = [&](const dnnl::primitive_attr& attributes) {
        memory::desc source = is_plain ? Plain(x) : Any(x), result = is_plain ? Plain(y) : Any(y);
        auto desc = HasBias(problem)
                        ? dnnl::inner_product_forward::desc(kInference, source, Any(w), Plain({y[1]}), result)
                        : dnnl::inner_product_forward::desc(kInference, source, Any(w), result);
        return dnnl::inner_product_forward::primitive_desc(desc, attributes, TheEngine().engine);
      };
      std::optional<PostOps> post = MakePostOps(problem, y, describe({}).dst_desc());
      if (!post) return;
      auto chosen = describe(post->attributes);
      std::unordered_map<int, memory> arguments(post->operands.begin(), post->operands.end());
      arguments[DNNL_ARG_WEIGHTS] = Reordered(View(Plain(w), problem.inputs[1]), chosen.weights_desc());
      if (HasBias(problem)) arguments[DNNL_ARG_BIAS] = View(Plain({y[1]}), problem.inputs[2]);
      peers.push_back(MakePeer(name, kind, dnnl::inner_product_forward(chosen), std::move(arguments),
                               View(Plain(x), problem.inputs[0]), chosen.src_desc(), y, chosen.dst_desc(),
                               kind == PeerKind::kSame));
    } catch (const dnnl::error&) {}
  };
  add_inner_product("oneDNN inner product", PeerKind::kSame, true);
  add_inner_product("oneDNN inner product reordering", PeerKind::kSame, false);
}

void AddPooling(const Problem& problem, std::vector<Peer>& peers) {
  memory::dims x = problem.shapes[0], y = problem.shapes.back();
  const bool is_global = problem.name == "global_avgpool";
  if (is_global) y = {x[0], x[1], 1, 1};
  const int64_t stride = problem.At("stride", 1), pad = problem.At("pad", 0);
  const memory::dims kernel =
      is_global ? memory::dims{x[2], x[3]} : memory::dims{problem.At("R", 1), problem.At("S", 1)};
  const memory::dims strides{stride, stride}, begin{pad, pad};
  memory::dims end;
  for (size_t d : {0, 1}) end.push_back((y[d + 2] - 1) * stride + kernel[d] - x[d + 2] - pad);
  const algorithm how = problem.name == "maxpool2d" ? algorithm::pooling_max : algorithm::pooling_avg_exclude_padding;
  auto add = [&](const std::string& name, PeerKind kind, const memory::desc& source) {
    try {
      dnnl::pooling_forward::desc desc(kInference, how, source, Any(y), strides, kernel, begin, end);
      dnnl::pooling_forward::primitive_desc chosen(desc, TheEngine().engine);
      peers.push_back(MakePeer(name, kind, dnnl::pooling_forward(chosen), {}, View(Plain(x), problem.inputs[0]),
                               chosen.src_desc(), y, chosen.dst_desc(), kind == PeerKind::kSame));
    } catch (const dnnl::error&) {}
  };
  memory::desc blocked(x, kF32, Tag::nChw16c);
  add("oneDNN plain", PeerKind::kSame, Plain(x));
  add("oneDNN reordering", PeerKind::kSame, blocked);
  add("oneDNN blocked", PeerKind::kBlocked, blocked);
}

void AddSoftmax(const Problem& problem, std::vector<Peer>& peers) {
  const memory::dims& x = problem.shapes[0];
  dnnl::softmax_forward::desc desc(kInference, Plain(x), static_cast<int>(x.size()) - 1);
  dnnl::softmax_forward::primitive_desc chosen(desc, TheEngine().engine);
  peers.push_back(MakePeer("oneDNN plain", PeerKind::kSame, dnnl::softmax_forward(chosen), {},
                           View(Plain(x), problem.inputs[0]), Plain(x), x, Plain(x), true));
}

void AddLayerNorm(const Problem& problem, std::vector<Peer>& peers) {
  const memory::dims& x = problem.shapes[0];
  auto epsilon = problem.attributes.find("eps");
  dnnl::layer_normalization_forward::desc desc(
      kInference, Plain(x), epsilon == problem.attributes.end() ? 1e-5f : static_cast<float>(epsilon->second),
      dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift);
  dnnl::layer_normalization_forward::primitive_desc chosen(desc, TheEngine().engine);
  std::unordered_map<int, memory> arguments;
  arguments[DNNL_ARG_SCALE] = View(Plain({x.back()}), problem.inputs[1]);
  arguments[DNNL_ARG_SHIFT] = View(Plain({x.back()}), problem.inputs[2]);
  peers.push_back(MakePeer("oneDNN plain", PeerKind::kSame, dnnl::layer_normalization_forward(chosen), arguments,
                           View(Plain(x), problem.inputs[0]), Plain(x), x, Plain(x), true));
}

// ---- what OpenBLAS computes

// The product that a kernel is, `count` times one behind the other; no epilogues.
struct Product {
  int64_t count = 1, m = 0, n = 0, k = 0;
  const float *a = nullptr, *b = nullptr;
  int64_t a_step = 0, b_step = 0;  // from one product to the next
  bool is_b_transposed = false;
};

std::optional<Product> AsProduct(const Problem& problem) {
  const std::vector<int64_t>&x = problem.shapes[0], &y = problem.shapes.back();
  if (!problem.epilogues.empty()) return std::nullopt;
  if (problem.name == "matmul" || problem.name == "dense")
    return Product{1, y[0], y[1], x[1], problem.inputs[0], problem.inputs[1], 0, 0, problem.name == "dense"};
  if (problem.name == "batch_matmul")
    return Product{y[0], y[1], y[2], x[2], problem.inputs[0], problem.inputs[1], y[1] * x[2], x[2] * y[2], false};
  const bool is_pointwise = problem.name == "conv2d" && problem.shapes[1][2] == 1 && problem.shapes[1][3] == 1 &&
                            problem.At("stride", 1) == 1 && problem.At("pad", 0) == 0 && problem.At("groups", 1) == 1;
  // Per image: O×C weights times C×(H·W) pixels.
  if (is_pointwise)
    return Product{x[0], y[1], y[2] * y[3], x[1], problem.inputs[1], problem.inputs[0], 0, x[1] * x[2] * x[3], false};
  return std::nullopt;
}

void AddOpenBlas(const Problem& problem, std::vector<Peer>& peers) {
  std::optional<Product> product = AsProduct(problem);
  if (!product) return;
  std::shared_ptr<float> data = Allocate(Count(problem.shapes.back()));
  Peer peer;
  peer.name = peer.library = "OpenBLAS";
  peer.result = data.get();
  peer.call = [p = *product, data] {
    auto n = [](int64_t extent) { return static_cast<blasint>(extent); };
    for (int64_t i = 0; i < p.count; ++i)
      cblas_sgemm(CblasRowMajor, CblasNoTrans, p.is_b_transposed ? CblasTrans : CblasNoTrans, n(p.m), n(p.n), n(p.k), 1,
                  p.a + i * p.a_step, n(p.k), p.b + i * p.b_step, n(p.is_b_transposed ? p.k : p.n), 0,
                  data.get() + i * p.m * p.n, n(p.n));
  };
  peers.push_back(std::move(peer));
}

}  // namespace

void SetLibraryThreads(int threads) {
  openblas_set_num_threads(threads);
  // oneDNN's threads are those of the OpenMP library that it was built with.
  using SetThreads = void (*)(int);
  if (auto set = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"))) set(threads);
}

std::vector<Peer> MakePeers(const Problem& problem) {
  std::vector<Peer> peers;
  AddOpenBlas(problem, peers);
  try {
    if (problem.name == "conv2d" || problem.name == "depthwise_conv2d") AddConvolutions(problem, peers);
    if (problem.name == "matmul" || problem.name == "dense" || problem.name == "batch_matmul")
      AddMatrixProducts(problem, peers);
    const bool is_bare = problem.epilogues.empty();
    if (is_bare && (problem.name.ends_with("pool2d") || problem.name == "global_avgpool")) AddPooling(problem, peers);
    if (is_bare && problem.name == "softmax") AddSoftmax(problem, peers);
    if (is_bare && problem.name == "layer_norm") AddLayerNorm(problem, peers);
  } catch (const dnnl::error&) {
    // Not supported at all: what was added before stays.
  }
  return peers;
}

std::map<std::string, std::function<void()>> EmptyCalls() {
  std::map<std::string, std::function<void()>> calls;
  calls["OpenBLAS"] = [] {
    static const float a = 1, b = 1;
    static float c;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, 1, &a, 1, &b, 1, 0, &c, 1);
  };
  // A softmax of one number, made as every primitive here.
  static const float one = 1;
  Problem nothing{"softmax", {}, {}, {{1, 1}, {1, 1}}, {&one}};
  std::vector<Peer> peers;
  AddSoftmax(nothing, peers);
  calls["oneDNN"] = peers[0].call;
  return calls;
}

}  // namespace hone
