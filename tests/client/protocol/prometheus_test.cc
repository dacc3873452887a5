// Counters as Prometheus reads them.
#include "client/protocol/prometheus.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(PrometheusText, NamesTypesAndUnits) {
  const std::vector<Stat> stats = {{"misses", 12345678},
                                   {"connections", 3},
                                   {"imports_waiting", 2},
                                   {"hit_count", 7},
                                   {"hit_p50_us", 2.5},
                                   {"hit_p99_us", 1000},
                                   {"serving_cpu_us", 1.5e6},
                                   {"cache_disk_bytes", 4096},
                                   {"family_records_entries", 1},
                                   {"family_records_bytes", 10},
                                   {"family_artifacts_entries", 2},
                                   {"family_artifacts_bytes", 20}};
  EXPECT_EQ(PrometheusText(stats), R"(# TYPE hone_misses_total counter
hone_misses_total 12345678
# TYPE hone_connections gauge
hone_connections 3
# TYPE hone_imports_waiting gauge
hone_imports_waiting 2
# TYPE hone_hit_seconds summary
hone_hit_seconds_count 7
hone_hit_seconds{quantile="0.5"} 2.5e-06
hone_hit_seconds{quantile="0.99"} 0.001
# TYPE hone_serving_cpu_seconds_total counter
hone_serving_cpu_seconds_total 1.5
# TYPE hone_cache_disk_bytes gauge
hone_cache_disk_bytes 4096
# TYPE hone_family_entries gauge
hone_family_entries{family="records"} 1
hone_family_entries{family="artifacts"} 2
# TYPE hone_family_bytes gauge
hone_family_bytes{family="records"} 10
hone_family_bytes{family="artifacts"} 20
)");
  EXPECT_EQ(PrometheusText({}), "");
}

}  // namespace
}  // namespace hone
