#include "client/cli/report/report_style.h"

namespace hone::cli {

// Colours are named once per scheme. Below 700 px the wide plots give way to narrow ones of their own, and rows of
// tables become two lines.
const std::string_view kReportStyle = R"(
:root { color-scheme: light dark;
  --paper: #fff; --ink: #1c2127; --soft: #57606a; --line: #d5dadf; --faint: #eef0f2;
  --accent: #0a5fc2; --accent-soft: #b9d4f3; --other: #8b46b0; --bad: #b4441f; --bad-soft: #e9b8a6; --mute: #a9b1b9; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #14171a; --ink: #e2e6ea; --soft: #9aa4ae; --line: #353b41; --faint: #1f2327;
  --accent: #5aa5f5; --accent-soft: #23456b; --other: #c58be4; --bad: #f08a62; --bad-soft: #6b3524; --mute: #5c656e; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 1120px; padding: 28px 24px 48px; background: var(--paper); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
h1 { font-size: 22px; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 16px; margin: 40px 0 4px; padding-top: 12px; border-top: 1px solid var(--line); }
h3 { font-size: 14px; margin: 18px 0 2px; }
p { margin: 4px 0 12px; max-width: 76ch; }
p.note, .facts, figcaption, .legend { color: var(--soft); }
a { color: inherit; }
code { font: 12px/1.4 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere; }
.facts { margin: 6px 0 0; display: grid; grid-template-columns: max-content 1fr; gap: 1px 16px; font-size: 13px; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; color: var(--ink); overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); margin: 22px 1px 0 0; padding: 0;
  list-style: none; }
.figures li { padding: 10px 14px 11px; border: 1px solid var(--line); margin: 0 -1px -1px 0; }
.figures b { display: block; font-size: 22px; font-weight: 600; letter-spacing: -.01em; line-height: 1.25; }
.figures span { color: var(--soft); font-size: 12.5px; }
.figures i { color: var(--soft); font-style: normal; display: block; font-size: 12.5px; }
table { width: 100%; border-collapse: collapse; font-size: 13px; }
th { text-align: right; font-weight: 500; color: var(--soft); padding: 4px 10px; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
td { text-align: right; padding: 4px 10px; vertical-align: top; border-bottom: 1px solid var(--faint);
  white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; width: 40px; color: var(--soft); }
th:last-child, td:last-child { padding-right: 0; }
td.k, th.k { text-align: left; white-space: normal; }
td.s, th.s { text-align: left; }
td.s { color: var(--soft); white-space: normal; }
td.s.tuned { color: var(--accent); }
td.gain { font-weight: 600; }
tr:target td { background: var(--accent-soft); }
tr.gone td { color: var(--mute); }
.bar { display: inline-block; vertical-align: baseline; width: 56px; height: 7px; margin-left: 8px;
  background: var(--faint); }
.bar i { display: block; height: 7px; background: var(--accent); }
.cache details table { table-layout: fixed; }
.cache col.c-n { width: 44px; } .cache col.c-s { width: 104px; } .cache col.c-calls { width: 92px; }
.cache col.c-t { width: 86px; } .cache col.c-g { width: 74px; } .cache col.c-r { width: 132px; }
.cache .overview { margin-bottom: 18px; }
.overview td:first-child, .overview th:first-child { width: auto; color: var(--ink); }
details { margin: 14px 0; }
summary { cursor: pointer; padding: 3px 0; font-weight: 600; }
summary span { font-weight: 400; color: var(--soft); font-size: 13px; }
.stack { display: flex; height: 14px; margin: 10px 0 8px; max-width: 720px; background: var(--faint); }
.stack i { display: block; height: 14px; }
.legend { display: flex; flex-wrap: wrap; gap: 3px 18px; margin: 4px 0 12px; padding: 0; list-style: none;
  font-size: 13px; }
.legend i { display: inline-block; width: 9px; height: 9px; margin-right: 6px; }
.legend svg { width: 12px; height: 12px; margin-right: 5px; vertical-align: -1.5px; }
.v-timed { background: var(--accent); } .v-slow { background: var(--accent-soft); } .v-bad { background: var(--bad); }
.v-unbuilt { background: var(--bad-soft); } .v-noise { background: var(--mute); } .v-other { background: var(--other); }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(232px, 1fr)); gap: 18px 20px; }
figure { margin: 0 0 22px; break-inside: avoid; } .panels figure { margin: 0; }
figcaption { font-size: 12.5px; }
.panels figcaption { min-height: 58px; }
.panels figcaption .name { display: -webkit-box; -webkit-line-clamp: 2; -webkit-box-orient: vertical;
  overflow: hidden; color: var(--ink); }
.panels figcaption b { color: var(--ink); font-weight: 600; }
svg { display: block; width: 100%; height: auto; font: 11px system-ui, -apple-system, "Segoe UI", Arial, sans-serif; }
.legend svg { display: inline-block; }
svg .grid { stroke: var(--faint); } svg .axis { stroke: var(--mute); }
svg text { fill: var(--soft); font-variant-numeric: tabular-nums; }
svg .tick { font-size: 10.5px; } svg .axislabel { font-size: 11.5px; }
svg .rooflabel { font-size: 11px; fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
svg .roof { stroke: var(--ink); stroke-width: 1.2; }
svg .pt { fill: var(--paper); stroke: var(--soft); stroke-width: 1.4; }
svg .pt.tuned { fill: var(--accent); stroke: var(--paper); stroke-width: .8; }
svg .pt.other { fill: var(--other); stroke: var(--paper); stroke-width: .8; }
svg .pt.pinned { stroke: var(--ink); stroke-width: 1.8; }
svg a:hover .pt, svg a:focus .pt { stroke: var(--bad); stroke-width: 2.5; }
svg .ptlabel { font-size: 10.5px; fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 2.5px; }
svg .best { fill: none; stroke: var(--accent); stroke-width: 1.7; }
svg .found { fill: var(--accent); }
svg .default { stroke: var(--mute); stroke-dasharray: 3 3; }
svg.narrow { display: none; }
footer { margin-top: 40px; padding-top: 10px; border-top: 1px solid var(--line); color: var(--soft); font-size: 12.5px; }
@media screen and (max-width: 700px) {
  body { padding: 18px 14px 32px; }
  svg.wide { display: none; } svg.narrow { display: block; }
  .facts { grid-template-columns: 1fr; gap: 0; } .facts dd { margin-bottom: 4px; }
  .figures { grid-template-columns: 1fr 1fr; }
  .figures b { font-size: 19px; }
  .panels { grid-template-columns: minmax(0, 310px); } .panels figcaption { min-height: 0; }
  .rows colgroup, .rows thead { display: none; }
  .rows, .rows tbody { display: block; }
  .rows tr { display: flex; flex-wrap: wrap; gap: 0 14px; padding: 6px 0 6px 40px; position: relative;
    border-bottom: 1px solid var(--line); }
  .rows td { display: block; border: 0; padding: 0; white-space: normal; text-align: left; width: auto; }
  .rows td:first-child { position: absolute; left: 0; width: auto; }
  .rows td.k { flex: 1 0 100%; }
  .rows.overview tr { padding-left: 0; }
  .rows.overview td:first-child { position: static; }
  .rows td::before { content: attr(data-l); color: var(--soft); font-weight: 400; }
  .bar { display: none; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 11px; }
  h2 { break-after: avoid; margin-top: 26px; } h3, summary, thead, p.note { break-after: avoid; } p { break-inside: avoid; }
  code { font-size: 9px; } .facts, .legend, figcaption, .panels figcaption, summary span { font-size: 10px; }
  table { font-size: 10px; } td, th { padding: 2px 5px; } tr { break-inside: avoid; } .bar { width: 32px; }
  .cache col.c-n { width: 30px; } .cache col.c-s { width: 64px; } .cache col.c-calls { width: 56px; }
  .cache col.c-t { width: 56px; } .cache col.c-g { width: 44px; } .cache col.c-r { width: 88px; }
  .figures { grid-template-columns: repeat(5, 1fr); } .figures b { font-size: 16px; } .figures li { padding: 7px 9px; }
  .figures span, .figures i { font-size: 9.5px; }
  .panels { grid-template-columns: repeat(3, 1fr); gap: 14px; } .panels figcaption { min-height: 44px; }
  @page { margin: 14mm 12mm; }
}
)";

}  // namespace hone::cli
