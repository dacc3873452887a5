#include "codegen/tile_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ir/rewrite.h"

namespace hone {
namespace {

double CeilDiv(int64_t a, int64_t b) { return static_cast<double>((a + b - 1) / b); }

// Bytes that the second-level cache delivers a cycle, sustained (Agner Fog; 64 at best on all of these cores).
constexpr double kL2BytesPerCycle = 28;

}  // namespace

std::optional<Contraction> AnalyzeContraction(const SchedulePlanner& planner, const std::string& name) {
  const Stage& stage = planner.StageNamed(name);
  if (stage.reduction != Reduction::kSum) return std::nullopt;
  std::vector<AccessPattern> accesses = planner.AccessesOf(stage);
  if (accesses.size() != 2 || accesses[0].tensor == accesses[1].tensor || !accesses[0].affine || !accesses[1].affine)
    return std::nullopt;
  Contraction c;
  c.stage = name;
  c.lanes = planner.LanesFor(stage);
  c.element_bytes = ByteSize(planner.kernel().tensors[static_cast<size_t>(stage.output)].dtype);
  const size_t rank = stage.axes.size();
  for (size_t i = 0; i < rank + stage.reduce_axes.size(); ++i) {
    c.extents.push_back(planner.Extent(planner.AxisAt(stage, i)));
    int position = static_cast<int>(i);
    bool in_a = accesses[0].uses[i], in_b = accesses[1].uses[i];
    if (i >= rank) {
      c.reduce.push_back(position);
      c.reduction *= c.extents[i];
    } else if (in_a && in_b) {
      c.batch.push_back(position);
    } else if (in_a || in_b) {
      c.only[in_a ? 0 : 1].push_back(position);
    } else if (c.extents[i] == 1) {
      c.batch.push_back(position);
    } else {
      return std::nullopt;
    }
  }
  c.operands[0] = std::move(accesses[0]);
  c.operands[1] = std::move(accesses[1]);
  return c;
}

std::vector<RegisterTile> RegisterTiles(const SchedulePlanner& planner, const Contraction& c, int output_axis) {
  const Target& target = planner.target();
  const int64_t registers = target.VectorRegisters();
  std::vector<RegisterTile> tiles;
  double batch = 1;
  for (int axis : c.batch) batch *= static_cast<double>(c.extents[static_cast<size_t>(axis)]);

  for (int v = 0; v < 2; ++v) {
    const AccessPattern& vector_operand = c.operands[v];
    const Tensor& vector_tensor = planner.kernel().tensors[static_cast<size_t>(vector_operand.tensor)];
    const std::vector<int>& row_axes = c.only[1 - v];
    for (int axis : c.only[v]) {
      size_t position = static_cast<size_t>(axis);
      int64_t extent = c.extents[position];
      if (extent < 2) continue;
      // The axis must be a plain dimension (then a panel can be packed), or contiguous in memory (then read in place).
      bool plain = true;
      for (size_t i = 0; i < c.extents.size(); ++i)
        plain &= !vector_operand.uses[i] || vector_operand.dimension[i] >= 0;
      bool contiguous = vector_operand.strides[position] == 1;
      if (!plain && !contiguous) continue;

      double other_vector_tiles = 1;  // of the operand's remaining own axes
      for (int other : c.only[v])
        if (other != axis) other_vector_tiles *= static_cast<double>(c.extents[static_cast<size_t>(other)]);
      int64_t lanes = std::min<int64_t>(c.lanes, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(extent))));
      int inner = row_axes.empty() ? -1 : row_axes.back();
      int outer = row_axes.size() < 2 ? -1 : row_axes[row_axes.size() - 2];
      double other_rows = 1;
      for (size_t i = 0; i + 2 < row_axes.size(); ++i)
        other_rows *= static_cast<double>(c.extents[static_cast<size_t>(row_axes[i])]);
      int64_t inner_extent = inner < 0 ? 1 : c.extents[static_cast<size_t>(inner)];
      int64_t outer_extent = outer < 0 ? 1 : c.extents[static_cast<size_t>(outer)];

      for (int64_t vectors = 1; vectors <= 8 && vectors <= (extent + lanes - 1) / lanes; ++vectors) {
        for (int64_t rows1 = 1; rows1 <= std::min(inner_extent, registers); ++rows1) {
          for (int64_t rows0 = 1; rows0 <= std::min(outer_extent, registers / rows1); ++rows0) {
            if (rows0 > 1 && rows1 < inner_extent && rows1 < 4) continue;
            int64_t rows = rows0 * rows1;
            // Accumulators, the vectors of one step, and one broadcast.
            if (rows * vectors + vectors + 1 > registers) continue;
            bool transposed = output_axis != axis;
            if (transposed && output_axis != inner) continue;
            double vector_tiles = CeilDiv(extent, vectors * lanes) * other_vector_tiles;
            double row_tiles = CeilDiv(inner_extent, rows1) * CeilDiv(outer_extent, rows0) * other_rows;
            // Per step of the reduction: two FMAs and two loads a cycle; four cycles from an FMA to the next of its
            // chain.
            double step =
                std::max({static_cast<double>(rows * vectors) / 2, static_cast<double>(rows + vectors) / 2, 4.0 * 1.0});
            if (!plain) step += 0.5 * static_cast<double>(vectors);  // unaligned vectors cross lines
            double panel = static_cast<double>(c.reduction * vectors * lanes * c.element_bytes);
            bool blocked = panel > static_cast<double>(target.l2_bytes) / 2 &&
                           row_tiles >= 4;  // then a piece stays in the first level
            if ((panel > static_cast<double>(target.l1_bytes) * 0.7 && !blocked) || row_tiles < 2)
              step = std::max(step, static_cast<double>(vectors * lanes * c.element_bytes) / kL2BytesPerCycle);
            double stores;
            if (transposed) {
              double blocks = static_cast<double>(vectors) * CeilDiv(rows1, lanes) * static_cast<double>(rows0);
              stores = blocks * (static_cast<double>(lanes) * std::log2(static_cast<double>(lanes)) +
                                 3.0 * static_cast<double>(lanes));
            } else {
              stores = static_cast<double>(rows * vectors) * 2;
            }
            double loops = 20;
            if (c.reduce.size() > 1)
              loops += static_cast<double>(c.reduction) / static_cast<double>(c.extents.back()) * 1.5;
            double cycles =
                batch * vector_tiles * row_tiles * (static_cast<double>(c.reduction) * step + stores + loops);
            // Rows read along a far stride get no help from the prefetchers: each line comes at its latency.
            const AccessPattern& row_operand = c.operands[1 - v];
            for (int k : c.reduce) {
              int64_t far = row_operand.strides[static_cast<size_t>(k)] * c.element_bytes;
              bool is_const = planner.kernel().tensors[static_cast<size_t>(row_operand.tensor)].is_const;
              double bytes = static_cast<double>(planner.Bytes(row_operand.tensor));
              if (!is_const && c.extents[static_cast<size_t>(k)] > 8 && far >= 1024 &&
                  bytes > static_cast<double>(target.l2_bytes) / 2)
                cycles += bytes * 0.2;
            }
            // A panel that is not constant is packed on every call.
            bool direct = !plain || (contiguous && row_tiles < 4);
            if (!direct && !vector_tensor.is_const)
              cycles += batch * vector_tiles * static_cast<double>(c.reduction * vectors) * (contiguous ? 2.0 : 8.0);
            if (direct && !plain && extent % (vectors * lanes) != 0 && extent < vectors * lanes) cycles *= 1.05;
            tiles.push_back({v, axis, vectors, {outer, inner}, {rows0, rows1}, direct, transposed, cycles});
          }
        }
      }
    }
  }
  return tiles;
}

namespace {

// A tile this many times as expensive as the cheapest is not worth measuring.
constexpr double kHopeless = 3;

// Vectors along a size that is known at run time only would all be masked.
void KeepVectorsFixed(const SchedulePlanner& planner, const std::string& stage, std::vector<RegisterTile>& tiles) {
  auto is_dynamic = [&](const RegisterTile& tile) {
    const Expr& extent = planner.AxisAt(planner.StageNamed(stage), static_cast<size_t>(tile.vector_axis)).extent;
    return LowerExtent(planner.kernel(), extent) != UpperExtent(planner.kernel(), extent);
  };
  if (!std::all_of(tiles.begin(), tiles.end(), is_dynamic)) std::erase_if(tiles, is_dynamic);
}

const RegisterTile& Cheapest(const std::vector<RegisterTile>& tiles) {
  return *std::min_element(tiles.begin(), tiles.end(),
                           [](const RegisterTile& a, const RegisterTile& b) { return a.cycles < b.cycles; });
}

// Decides one number of the tile; what is left has it, and the cheapest of that is preferred in the next decision.
template <typename Part>
void Narrow(SchedulePlanner& planner, const std::string& stage, std::string_view decision,
            std::vector<RegisterTile>& tiles, const Part& part) {
  std::vector<int64_t> options;
  for (const RegisterTile& tile : tiles) options.push_back(part(tile));
  int64_t value = planner.Choose(stage, decision, std::move(options), part(Cheapest(tiles)));
  std::erase_if(tiles, [&](const RegisterTile& tile) { return part(tile) != value; });
}

}  // namespace

std::optional<RegisterTile> ChooseTile(SchedulePlanner& planner, const Contraction& c, int output_axis) {
  std::vector<RegisterTile> tiles = RegisterTiles(planner, c, output_axis);
  if (tiles.empty()) return std::nullopt;
  KeepVectorsFixed(planner, c.stage, tiles);
  double most = Cheapest(tiles).cycles * kHopeless;
  std::erase_if(tiles, [&](const RegisterTile& tile) { return tile.cycles > most; });
  Narrow(planner, c.stage, "vector_axis", tiles, [](const RegisterTile& tile) { return int64_t{tile.vector_axis}; });
  Narrow(planner, c.stage, "vectors", tiles, [](const RegisterTile& tile) { return tile.vectors; });
  Narrow(planner, c.stage, "rows", tiles, [](const RegisterTile& tile) { return tile.rows[1]; });
  Narrow(planner, c.stage, "outer_rows", tiles, [](const RegisterTile& tile) { return tile.rows[0]; });
  return Cheapest(tiles);
}

}  // namespace hone
