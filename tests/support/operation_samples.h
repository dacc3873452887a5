// Spellings of every library operation at small, odd sizes, for tests that must hold for each of them.
#pragma once

#include <string>
#include <vector>

namespace hone {

// Each is small enough for a plain loop over every element. All are static.
inline std::vector<std::string> OperationSamples() {
  return {
      "matmul(M=7,N=5,K=13)",
      "matmul(M=1,N=31,K=3)",
      "matmul(M=5,N=7,K=3,ta=1)",
      "matmul(M=5,N=7,K=3,tb=1)",
      "matmul(M=5,N=7,K=3,ta=1,tb=1,const=1)+bias+gelu",
      "matmul(M=3,N=4,K=9,dtype=i8)",
      "matmul(M=3,N=4,K=9,dtype=i8)+bias+relu",
      "matmul(M=3,N=4,K=9,dtype=f64)+bias+tanh",
      "matmul(M=5,N=19,K=9,dtype=f16)",
      "matmul(M=5,N=19,K=9,dtype=bf16,const=1)+bias+gelu",
      "matmul(M=3,N=4,K=9,dtype=u8)+bias+relu",
      "batch_matmul(B=3,M=7,N=5,K=2)",
      "batch_matmul(B=2,M=3,N=5,K=7,tb=1)+add",
      "dense(M=7,N=13,K=5)",
      "dense(M=1,N=13,K=5,const=1)+bias+relu",
      "dense(M=7,N=3,K=5)+bias+gelu_tanh+mul+add",
      "dense(M=3,N=17,K=37,dtype=bf16,const=1)",
      "dense(M=3,N=17,K=37,dtype=f16)+bias+add+relu",
      "dense(M=3,N=17,K=37,dtype=u8,const=1)",
      "dense(M=3,N=17,K=37,accuracy=fast,const=1)+bias",
      "dense(M=1,N=13,K=24,weights=i8,const=1)+bias",
      "dense(M=5,N=19,K=32,weights=i8,block=8)",
      "dense(M=7,N=19,K=37,weights=i8,const=1)+gelu",
      "dense(M=3,N=17,K=36,weights=u8,block=12,const=1)+add",
      "dense(M=1,N=9,K=64,weights=u4,block=16,zero=1,const=1)+relu",
      "dense(M=7,N=21,K=64,weights=u4,block=32,const=1)",
      "dense(M=2,N=5,K=14,weights=u4,dtype=f16,const=1)",
      "conv2d(C=3,H=7,W=5,O=4,R=3,S=3)",
      "conv2d(C=3,H=7,W=5,O=4,R=3,S=3,pad=1,const=1)+bias+relu",
      "conv2d(N=2,C=3,H=7,W=9,O=5,R=3,S=1,stride=[2,3],pad=[1,0])+bias+silu",
      "conv2d(C=2,H=9,W=9,O=3,R=3,S=3,dilation=2,pad=[1,2,0,1])+bias+add+relu",
      "conv2d(C=5,H=3,W=3,O=7,R=1,S=1,stride=2)+bias+sigmoid",
      "conv2d(C=6,H=5,W=7,O=9,R=3,S=3,groups=3,pad=1)+bias+relu6",
      "conv2d(C=4,H=5,W=7,O=4,R=3,S=3,groups=4,pad=1)+bias",
      "conv2d(C=3,H=4,W=5,O=2,R=3,S=3,pad=1,dtype=i8)+bias+relu",
      "conv2d(C=3,H=4,W=5,O=2,R=3,S=3,pad=1,dtype=f16,const=1)+bias+relu",
      "conv2d(C=4,H=5,W=7,O=2,R=3,S=3,groups=2,pad=1,dtype=bf16)+bias",
      "depthwise_conv2d(C=5,H=7,W=6,R=3,S=3,pad=1)",
      "depthwise_conv2d(C=3,H=7,W=6,R=3,S=3,pad=1,dtype=bf16)+relu6",
      "depthwise_conv2d(N=2,C=3,H=9,W=7,R=5,S=3,stride=2,pad=[2,1],const=1)+bias+hardswish",
      "maxpool2d(C=3,H=7,W=9,R=3,S=3,stride=2,pad=1)",
      "maxpool2d(N=2,C=3,H=8,W=7,R=3,S=2,stride=2,ceil=1)+relu",
      "maxpool2d(C=2,H=6,W=6,R=2,S=2,dtype=i8)",
      "maxpool2d(C=2,H=7,W=18,R=3,S=3,pad=1,dtype=u8)",
      "maxpool2d(C=2,H=7,W=18,R=3,S=3,pad=1,dtype=f16)",
      "maxpool2d(C=2,H=6,W=6,R=2,S=2,dtype=bf16)+gelu",
      "avgpool2d(C=3,H=7,W=9,R=3,S=3,stride=2,pad=1)",
      "avgpool2d(C=1,H=8,W=10,R=3,S=4,stride=[2,3],pad=[1,2],ceil=1)+relu",
      "avgpool2d(C=2,H=7,W=9,R=3,S=3,pad=1,dtype=f16)",
      "global_avgpool(C=5,H=7,W=3)",
      "global_avgpool(C=5,H=7,W=3,dtype=bf16)",
      "global_avgpool(N=2,C=3,H=1,W=1)+bias",
      "softmax(M=5,N=13)",
      "softmax(M=1,N=1)",
      "softmax(M=3,N=37,dtype=f16)",
      "layer_norm(M=3,N=17)",
      "layer_norm(M=2,N=31,eps=1e-3)+add",
      "layer_norm(M=2,N=31,dtype=bf16)+add",
      "rms_norm(M=3,N=17)",
      "rms_norm(M=3,N=17,dtype=f16)",
      "reduce_sum(M=7,N=31)",
      "reduce_sum(M=3,N=5,dtype=i8)",
      "reduce_sum(M=3,N=37,dtype=f16)",
      "reduce_sum(M=3,N=37,dtype=u8)",
      "transpose(M=5,N=7)",
      "transpose(M=5,N=17,dtype=bf16)",
      "transpose(M=3,N=1,dtype=i8)+relu",
      "add(M=3,N=7)",
      "add(M=3,N=7,dtype=i8)+relu",
      "add(M=3,N=27,dtype=f16)+relu",
      "mul(M=3,N=7)+bias+relu",
      "mul(M=3,N=27,dtype=bf16)",
      "gelu(M=3,N=7)",
      "gelu(M=3,N=27,dtype=f16)",
  };
}

// What no library operation has, too: functions whose arguments are reduced, and bytes that are packed, quantised,
// shared and written.
inline std::vector<std::string> GpuSamples() {
  std::vector<std::string> samples = OperationSamples();
  samples.push_back("kernel waves(x: f32[37]) -> y: f32[37] { y[i] = sin(x[i]*1000) + cos(x[i]) + round(x[i]*4) }");
  samples.push_back(
      "kernel powers(x: f32[N], y: f32[N]) -> z: f32[N] where N=68 "
      "{ z[i] = pow(abs(x[i]) * 9.0, y[i] * 20.0) + pow(x[i], 3.0) }");
  samples.push_back(
      "kernel quantised(x: u8[M, K], const w: i8[N, K], s: f32[N]) -> y: u8[M, N] where M=9, N=21, K=36 "
      "{ y[m, n] = u8(round(float(sum(k) x[m, k] * w[n, k]) * s[n]) + 128.0) }");
  samples.push_back(
      "kernel moved(x: u8[M, N], const b: u8[N]) -> y: u8[N, M] where M=12, N=20 "
      "{ y[n, m] = if(m < 5, max(x[m, n], b[n]), u8(x[m, n] + b[n] * 3)) }");
  return samples;
}

// What a block's threads do together at sizes above those: rows that they reduce, products of few rows, windows and
// tiles of which several threads have one each.
inline std::vector<std::string> LongRowSamples() {
  return {
      "softmax(M=2,N=300)",
      "layer_norm(M=2,N=515)",
      "rms_norm(M=2,N=300)+mul",
      "reduce_sum(M=3,N=600)",
      "reduce_sum(M=1,N=9000)",
      "global_avgpool(C=3,H=17,W=19)",
      "dense(M=1,N=6,K=130)+bias",
      "dense(M=3,N=5,K=128)",
      "conv2d(C=5,H=9,W=7,O=6,R=3,S=3,pad=1,const=1,accuracy=relaxed)+bias+relu",
      "matmul(M=1,N=24,K=100)+bias",
      "matmul(M=3,N=21,K=70)",
      "transpose(M=40,N=70)",
      "depthwise_conv2d(C=2,H=19,W=21,R=3,S=3,pad=1)",
  };
}

}  // namespace hone
