// Schedules for GPUs by hand, for tests of lowering, straight code, the machine model and the printer.
#pragma once

namespace hone {

// acc, with bias and relu in y: blocks of 16×32 elements, 4×8 threads of 4×4, operands through block storage, 8 steps
// of k at a time.
inline constexpr char kTiledMatmul[] = "matmul(M=37,N=45,K=29)+bias+relu";
inline constexpr char kTiledMatmulSchedule[] = R"(
split y.m 4 4
split y.n 8 4
reorder y.m.0 y.n.0 y.m.1 y.n.1 y.m.2 y.n.2
bind y.m.0 block.y
bind y.n.0 block.x
bind y.m.1 thread.y
bind y.n.1 thread.x
unroll y.m.2
vectorize y.n.2
compute_at acc y.n.1
store acc registers
cache_read a -> as for acc block [m, k+1]
cache_read b -> bs for acc block
split acc.k 8
reorder acc.k.0 acc.k.1 acc.m acc.n
unroll acc.k.1 acc.m
vectorize acc.n
compute_at as acc.k.0
compute_at bs acc.k.0
split as.m 4
split as.k 8
reorder as.m.0 as.k.0 as.m.1 as.k.1
bind as.m.1 thread.y
bind as.k.1 thread.x
split bs.k 4
split bs.n 8 4
reorder bs.k.0 bs.k.1 bs.n.0 bs.n.1 bs.n.2
bind bs.k.1 thread.y
bind bs.n.1 thread.x
vectorize bs.n.2
)";

}  // namespace hone
