#include "codegen/rules/tile_copies.h"

#include <algorithm>
#include <numeric>

#include "codegen/rules/contraction_rule.h"
#include "ir/graph/dtype_traits.h"

namespace hone {
namespace {

constexpr int64_t kBanks = 32, kBankBytes = 4, kRowOfBanks = kBanks * kBankBytes;
constexpr int64_t kCopiesOfRow = kRowOfBanks / kCopyBytes;  // as many threads read 16 bytes at a time

// The last dimension of more than one element.
std::optional<size_t> LastDimension(const SchedulePlanner& planner, const Tensor& tensor) {
  for (size_t d = tensor.shape.size(); d-- > 0;)
    if (UpperExtent(planner.kernel(), tensor.shape[d]) > 1) return d;
  return std::nullopt;
}

// Whether who reads columns of that size reads them in parts, and would meet others in a bank.
bool WantsRoomInColumns(const ReductionTile& tile, int64_t bytes) {
  return tile.has_room && tile.columns * bytes > kCopyBytes && tile.width() * bytes % kRowOfBanks == 0;
}

// Columns side by side, with room after every row of banks. Rows of what is turned round lie so far apart that a run of
// copies is spread over the banks.
std::vector<LayoutDim> LayoutOfColumns(const std::vector<std::string>& axes, size_t column, int64_t bytes,
                                       const ReductionTile& tile, bool is_turned) {
  const bool has_room = WantsRoomInColumns(tile, bytes);
  if (!is_turned && !has_room) return {};
  std::vector<LayoutDim> layout;
  for (size_t d = 0; d < axes.size(); ++d)
    if (d != column) layout.push_back(Whole(axes[d]));
  if (!has_room) {
    layout.push_back(Whole(axes[column], kBanks / RunOfTurned(tile)));
    return layout;
  }
  const int64_t group = kRowOfBanks / bytes;
  layout.push_back(Quotient(axes[column], group));
  layout.back().extra = is_turned && tile.width() / group % 2 == 0 ? 1 : 0;
  layout.push_back(Remainder(axes[column], group));
  layout.back().extra = kCopyBytes / bytes;
  return layout;
}

// Of rows along the reduction, whose steps are loaded 16 bytes at once: room after the rows of a thread, after each
// row, or both, whichever is the least that spreads what is read at a time over the banks.
std::vector<LayoutDim> LayoutOfRows(const std::vector<std::string>& axes, size_t row, size_t last, int64_t bytes,
                                    const ReductionTile& tile) {
  const int64_t chunk = kCopyBytes / bytes;
  const int64_t at_once = std::min(tile.threads_y, kCopiesOfRow / std::min(kCopiesOfRow, tile.threads_x));
  if (tile.length() % chunk != 0) return {};
  for (const auto& [rows, chunks] : {std::pair{0, 0}, {0, 1}, {1, 0}, {1, 1}}) {
    const int64_t apart = (tile.rows + rows) * (tile.length() / chunk + chunks);
    if (at_once > kCopiesOfRow / std::gcd(apart, kCopiesOfRow)) continue;
    if (rows + chunks == 0) return {};
    std::vector<LayoutDim> layout;
    for (size_t d = 0; d < axes.size(); ++d) {
      if (d == row && rows > 0) {
        layout.push_back(Quotient(axes[d], tile.rows));
        layout.push_back(Remainder(axes[d], tile.rows));
        layout.back().extra = rows;
      } else {
        layout.push_back(Whole(axes[d], d == last ? chunks * chunk : 0));
      }
    }
    return layout;
  }
  return {};
}

}  // namespace

bool LiesCrosswise(const SchedulePlanner& planner, const TileOperand& operand, AxisId x) {
  const AccessPattern& access = operand.access;
  const Tensor& tensor = planner.kernel().tensors[access.tensor];
  return access.affine && ByteSize(tensor.dtype) == kBankBytes && access.strides[operand.steps] == 1 &&
         access.dimension[x] && access.dimension[x] != LastDimension(planner, tensor);
}

std::vector<LayoutDim> CopyLayout(const SchedulePlanner& planner, const TileOperand& operand, const ReductionTile& tile,
                                  const std::vector<std::string>& axes) {
  const AccessPattern& access = operand.access;
  const Tensor& tensor = planner.kernel().tensors[access.tensor];
  const std::optional<size_t> last = LastDimension(planner, tensor), column = access.dimension[tile.x];
  if (axes.size() != tensor.shape.size() || !last) return {};
  const int64_t bytes = ByteSize(tensor.dtype);
  const bool is_turned = tile.is_turned && LiesCrosswise(planner, operand, tile.x);
  if (column && (is_turned || column == last)) return LayoutOfColumns(axes, *column, bytes, tile, is_turned);
  if (!tile.has_room || !tile.y || access.strides[operand.steps] != 1) return {};
  const std::optional<size_t> row = access.dimension[tile.y];
  return row && row < last ? LayoutOfRows(axes, *row, *last, bytes, tile) : std::vector<LayoutDim>();
}

std::string TurnedAlong(const SchedulePlanner& planner, const TileOperand& operand, const ReductionTile& tile,
                        const std::vector<std::string>& axes) {
  const Tensor& tensor = planner.kernel().tensors[operand.access.tensor];
  if (!tile.is_turned || axes.size() != tensor.shape.size() || !LiesCrosswise(planner, operand, tile.x)) return "";
  return axes[*LastDimension(planner, tensor)];
}

int64_t RunOfTurned(const ReductionTile& tile) { return std::min<int64_t>(8, tile.length()); }

int64_t CopiedAtOnce(const SchedulePlanner& planner, const Stage& sum, const TileOperand& operand,
                     const ReductionTile& tile) {
  const AccessPattern& access = operand.access;
  const Tensor& tensor = planner.kernel().tensors[access.tensor];
  const int64_t lanes = kCopyBytes / ByteSize(tensor.dtype);
  const std::optional<size_t> last = LastDimension(planner, tensor);
  if (!last || UpperExtent(planner.kernel(), tensor.shape[*last]) % lanes != 0) return 1;
  if (IsMadeForOneReader(planner, tensor.name)) return 1;
  // Runs of a reduction in parts lie side by side.
  if (tile.parts > 1 && access.strides[operand.steps] == 1) return tile.length() % lanes == 0 ? lanes : 1;
  for (AxisId axis : sum.axis_ids()) {
    if (access.dimension[axis] != last) continue;
    const int64_t of_tile = axis == tile.x                      ? tile.width()
                            : axis == tile.y                    ? tile.height()
                            : axis == *sum.reduce_ids().begin() ? tile.steps
                                                                : 1;
    return of_tile % lanes == 0 ? lanes : 1;
  }
  return 1;
}

int64_t BytesOfCopies(const SchedulePlanner& planner, const Stage& sum, const ReductionTile& tile) {
  int64_t bytes = 0;
  for (const AccessPattern& access : planner.AccessesOf(sum)) {
    const int64_t element = ByteSize(planner.kernel().tensors[access.tensor].dtype), chunk = kCopyBytes / element;
    int64_t columns = tile.width(), rows = tile.height(), length = tile.length();
    if (WantsRoomInColumns(tile, element)) columns += (columns * element / kRowOfBanks + 1) * chunk;
    if (tile.is_turned) columns += kBanks;
    if (tile.has_room && !access.uses[tile.x]) rows += tile.threads_y, length += chunk;
    int64_t elements = element;
    for (AxisId axis : sum.axis_ids()) {
      if (!access.uses[axis]) continue;
      elements *= axis == tile.x                      ? columns
                  : axis == tile.y                    ? rows
                  : axis == *sum.reduce_ids().begin() ? length
                  : sum.Reduces(axis)                 ? planner.Extent(sum, axis)
                                                      : 1;
    }
    bytes += elements;
  }
  return std::max<int64_t>(bytes, 1);
}

}  // namespace hone
