// hone report: the cache, its tuning and what it has won, as one HTML page.
#include <fmt/format.h>

#include <memory>

#include "client/cli/command.h"
#include "client/cli/context.h"
#include "client/cli/report/gather_report.h"
#include "client/cli/report/report_page.h"
#include "client/cli/write_output.h"

namespace hone::cli {
namespace {

int RunWriteReport(Context& context, const Arguments& arguments) {
  const std::string output = arguments.Text("--out");
  if (output.empty())
    return context.WrongUsage({ErrorKind::kInvalid, "wanted a file to write, such as -o report.html", "--out"});
  const bool to_standard_output = IsStandardOutput(output);
  if (to_standard_output && context.json())
    return context.WrongUsage(
        {ErrorKind::kInvalid, "the page and --json cannot both go to standard output; name a file", "--out"});
  Result<std::string> file = OutputFile(output);
  if (!file) return context.Fail(file.error());
  Result<Channel> channel = context.Ask();
  if (!channel) return context.Fail(channel.error());
  std::unique_ptr<ProgressBar> bar;
  GatherOptions options;
  options.on_progress = [&](size_t done, size_t all) {
    if (!bar) bar = std::make_unique<ProgressBar>(all);
    bar->Show(done, "kernels");
  };
  Result<ReportData> data = GatherReport(*channel, options, Context::Patience());
  bar.reset();
  if (!data) return context.Fail(data.error());
  const std::string page = ReportPage(*data);
  if (Result<void> written = WriteOutput(*file, page); !written) return context.Fail(written.error());
  if (to_standard_output) return kDone;
  if (context.json()) {
    Print(Json().Set("file", output).Set("kernels", data->kernels.size()).Set("bytes", page.size()).Dump() + "\n");
  } else {
    Print(fmt::format("{}: {} kernel{}, {}\n", output, data->kernels.size(), data->kernels.size() == 1 ? "" : "s",
                      BytesText(static_cast<double>(page.size()))));
  }
  return kDone;
}

}  // namespace

Command ReportCommand() {
  return {
      .name = "report",
      .summary = "write a page about the cache: by class, curves, roofline, what refining has won",
      .details =
          R"(One HTML file that loads nothing else. The roofs of the machine are measured when first asked for, which takes a part
of a second; so does a thousand kernels. Of a large cache the page shows what weighs most, and says how much it leaves
out. The file is replaced as a whole.

Examples:
  hone report -o report.html
  hone --cache /var/lib/hone report -o - | gzip > report.html.gz)",
      .positionals = {},
      .options = {{"--out", "FILE", "the file to write, or - for standard output", "-o"}},
      .run = RunWriteReport};
}

}  // namespace hone::cli
