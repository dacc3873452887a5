// Families of texts that look small and want to cost much: each repeats one construct of the kernel language, of
// library operations, of targets or of schedules until the text is as long as asked. Some are kernels, most are errors;
// all have to be read in little time and memory. LookUp does with a text what a look-up does.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/language/canonical.h"
#include "ir/language/fingerprint.h"
#include "ir/language/parse.h"
#include "ir/schedule/schedule.h"
#include "ir/schedule/schedule_cases.h"
#include "ir/target.h"

namespace hone {

enum class HostileReader : uint8_t { kKernel, kTarget, kSchedule };

struct HostileFamily {
  std::string name;
  HostileReader reader = HostileReader::kKernel;
  std::function<std::string(size_t bytes)> text;  // of about so many bytes
};

// What request_path does with a kernel's text before it asks the cache; "" or the error.
inline std::string LookUpKernel(std::string_view text) {
  Result<Kernel> kernel = ParseKernel(text);
  if (!kernel) return kernel.error().Text();
  const Canonical canonical = Canonicalize(*kernel);
  std::string seen = FingerprintOf(canonical).Hex() + ClassFingerprintOf(canonical).Hex();
  for (TensorId id : kernel->operands)
    for (const Expr& extent : kernel->tensors[id].shape)
      if (UpperExtent(*kernel, extent) < LowerExtent(*kernel, extent)) return "an extent without values";
  if (!IsStatic(*kernel))
    for (Size& size : kernel->sizes) size.lo = size.hi;
  return FlopCount(*kernel) >= 0 && !seen.empty() ? "" : "nothing to compute";
}

inline std::string LookUp(HostileReader reader, std::string_view text) {
  switch (reader) {
    case HostileReader::kKernel: return LookUpKernel(text);
    case HostileReader::kTarget: {
      Result<Target> target = ParseTarget(text);
      return target ? (PrintTarget(*target).empty() ? "nothing printed" : "") : target.error().Text();
    }
    case HostileReader::kSchedule: {
      Result<ScheduleCases> cases = ParseScheduleCases(text);
      if (cases) (void)PrintScheduleCases(*cases);
      Result<Schedule> schedule = ParseSchedule(text);
      if (schedule) (void)PrintSchedule(*schedule);
      return schedule ? "" : schedule.error().Text();
    }
  }
  return "";
}

// What a kernel holds, as ParseLimits::nodes counts it.
inline size_t NodesOf(const Kernel& kernel) {
  size_t nodes = 0;
  auto count = [&](const std::vector<Expr>& exprs) {
    for (const Expr& expr : exprs) nodes += expr.nodes();
  };
  for (const Tensor& tensor : kernel.tensors) count(tensor.shape), count(tensor.declared);
  for (const Stage& stage : kernel.stages) {
    for (const Axis& axis : stage.axes) nodes += axis.extent.nodes();
    for (const Axis& axis : stage.reduce_axes) nodes += axis.extent.nodes();
    nodes += stage.body.nodes();
  }
  return nodes;
}

// The attack that ended a daemon: 22 names, each a sum of 990 terms that begins with the one before.
inline std::string TowersOfSums(int towers = 22, int terms = 990) {
  std::string text = "kernel k(x: f32[4]) -> y: f32[4] where N=1, A0=N";
  for (int t = 0; t < towers; ++t) {
    if (t > 0) text += ", A" + std::to_string(t) + "=A" + std::to_string(t - 1);
    for (int i = 1; i < terms; ++i) text += "+N";
  }
  return text + " { y[i] = x[i] * float(A" + std::to_string(towers - 1) + ") }";
}

// The attack that took gigabytes: every dimension is a minimum of 65,536 mentions of one size.
inline std::string DoubledExtents(size_t bytes, int doublings = 15) {
  std::string where = " where N=1, A0=N";
  for (int i = 1; i <= doublings; ++i) {
    const std::string before = "A" + std::to_string(i - 1);
    where += ", A" + std::to_string(i) + "=min(" + before + "," + before + ")";
  }
  const std::string last = "A" + std::to_string(doublings);
  std::string dims = last;
  for (int d = 1; d < 8; ++d) dims += "," + last;
  std::string inputs = "x: f32[1]", body;
  for (int i = 0; i < 60 && inputs.size() < bytes / 2; ++i) inputs += ", x" + std::to_string(i) + ": f32[" + dims + "]";
  for (int i = 0; i < 255 && inputs.size() + where.size() + body.size() < bytes; ++i) {
    const std::string name = "t" + std::to_string(i);
    body += name + ": f32[" + dims + "] " + name + "[a,b,c,d,e,f,g,h] = 1.0\n";
  }
  return "kernel k(" + inputs + ") -> y: f32[1]" + where + " {\n" + body + "y[i] = x[i] }";
}

namespace hostile {

using Item = std::function<std::string(int i)>;

// head item(0) item(1) … tail, of about `bytes`; at most `most` items.
inline std::string Row(size_t bytes, std::string head, const Item& item, std::string_view tail, int most = 1 << 30) {
  for (int i = 0; i < most && head.size() + tail.size() < bytes; ++i) head += item(i);
  return head += tail;
}

// A row of items, then as many closing brackets.
inline std::string Nest(size_t bytes, std::string head, const Item& item, std::string_view core, std::string_view close,
                        std::string_view tail, int most = 1 << 30) {
  int count = 0;
  size_t closing = 0;
  while (count < most && head.size() + closing + core.size() + tail.size() < bytes) {
    head += item(count++);
    closing += close.size();
  }
  head += core;
  for (int i = 0; i < count; ++i) head += close;
  return head += tail;
}

inline Item Same(std::string_view text) {
  return [text = std::string(text)](int) { return text; };
}

// `text` with each $ replaced by the item's number from 1, each ^ by the number before it, and each @ by one below 60.
inline Item Numbered(std::string_view text) {
  return [text = std::string(text)](int i) {
    std::string out;
    for (char c : text) {
      if (c == '$')
        out += std::to_string(i + 1);
      else if (c == '^')
        out += std::to_string(i);
      else if (c == '@')
        out += std::to_string(i % 60);
      else
        out += c;
    }
    return out;
  };
}

inline const std::string kHead =
    "kernel k(x: f32[N], z: f32[N, M], j: i32[N], b: i8[N]) -> y: f32[N] where N=5, M=4 { y[n] = ";

}  // namespace hostile

inline std::vector<HostileFamily> HostileFamilies() {
  using namespace hostile;
  std::vector<HostileFamily> families;
  auto add = [&](std::string name, std::function<std::string(size_t)> text,
                 HostileReader reader = HostileReader::kKernel) {
    families.push_back({std::move(name), reader, std::move(text)});
  };
  // One construct again and again, between a head and a tail.
  auto row = [&](std::string name, std::string head, std::string item, std::string tail, int most = 1 << 30) {
    add(std::move(name), [=](size_t bytes) { return Row(bytes, head, Numbered(item), tail, most); });
  };
  auto nest = [&](std::string name, std::string item, std::string core, std::string close, int most = 1 << 30) {
    add(std::move(name), [=](size_t bytes) { return Nest(bytes, kHead, Numbered(item), core, close, " }", most); });
  };

  // Names that stand for expressions.
  add("where towers of sums", [](size_t bytes) { return TowersOfSums(static_cast<int>(bytes / 1990) + 1); });
  add("where doubled, every dimension", [](size_t bytes) { return DoubledExtents(bytes); });
  add("where doubled 9 times, every dimension", [](size_t bytes) { return DoubledExtents(bytes, 9); });
  add("where doubled 5 times, every dimension", [](size_t bytes) { return DoubledExtents(bytes, 5); });
  row("where doubled, unused", "kernel k(x: f32[N]) -> y: f32[N] where N=1, A0=N", ", A$=A^+A^", " { y[i] = x[i] }");
  for (const char* item : {"A^+1", "(A^+1)*2", "(N+1)/A^", "min(A^, N)", "max(N, 3-A^)", "(A^+N)%7", "A^*1"}) {
    row(std::string("where chain ") + item, "kernel k(x: f32[N]) -> y: f32[N] where N=1, A0=N",
        std::string(", A$=") + item, " { y[i] = x[i] }");
    // Used: as many as the limits may allow, in a body, a dimension and a reduction's range.
    for (int most : {12, 180, 990})
      row(std::string("where chain used ") + item + " " + std::to_string(most),
          "kernel k(x: f32[N]) -> y: f32[N] where N=1, A0=N", std::string(", A$=") + item,
          " { y[i] = x[i] + float(A" + std::to_string(most) + ") + sum(k < A" + std::to_string(most) + ") 1.0 }", most);
  }
  for (int power : {8, 11, 13}) {
    std::string where = "N=1, A0=N";
    for (int i = 1; i <= power; ++i) where += Numbered(", A$=A^+A^")(i - 1);
    const std::string last = "A" + std::to_string(power);
    row("where mentioned often, " + std::to_string(power), "kernel k(x: f32[4]) -> y: f32[4] where " + where + " { ",
        "t$: f32[4] t$[i] = x[i]*float(" + last + ") ", "y[i] = x[i] }", 250);
    row("where in one product, " + std::to_string(power),
        "kernel k(x: f32[4]) -> y: f32[4] where " + where + " { y[i] = sum(k<2) float(k)", "*float(" + last + ")",
        " }");
    row("where in equal sums, " + std::to_string(power),
        "kernel k(x: f32[4]) -> y: f32[4] where " + where + " { y[i] = 0.0", "+exp(sum(k<2) float(k+" + last + "))",
        " }");
    row("where in sizes that nothing mentions, " + std::to_string(power),
        "kernel k(x: f32[4]) -> y: f32[4] where " + where, ", B$=(" + last + "+$)/" + last, " { y[i] = x[i] }");
    row("where as the range of sums, " + std::to_string(power),
        "kernel k(x: f32[" + last + "]) -> y: f32[4] where " + where + " { y[i] = sum(k) ", "x[k]*", "x[k] }");
    row("where as two ranges of one variable, " + std::to_string(power),
        "kernel k(x: f32[" + last + "], z: f32[min(" + last + ", " + last + ")]) -> y: f32[4] where " + where +
            " { y[i] = sum(k) x[k]*",
        "z[k]*", "x[k] }");
    row("where as views, " + std::to_string(power), "kernel k(x: f32[4]",
        ", x$: f32[" + last + ", 2, " + last + "] as [2, " + last + ", " + last + "]",
        ") -> y: f32[4] where " + where + " { y[i] = x[i] }", 60);
    row("where as dynamic views, " + std::to_string(power), "kernel k(x: f32[4]",
        ", x$: f32[" + last + ", 2] as [2, " + last + "]",
        ") -> y: f32[4] where " + where + ", D=1..2 { y[i] = x[i]*float(D) }", 60);
  }

  // Sizes.
  row("sizes, unused", "kernel k(x: f32[4]) -> y: f32[4] where N=1", ",N$=1", " { y[i] = x[i] }");
  row("ranges, unused", "kernel k(x: f32[4]) -> y: f32[4] where N=1", ",N$=1..2", " { y[i] = x[i] }");
  for (bool dynamic : {false, true})
    add(dynamic ? "ranges, all mentioned" : "sizes, all mentioned", [=](size_t bytes) {
      std::string where = "N=1", body;
      for (int i = 0; where.size() + body.size() < bytes && i < 250 * 80; ++i) {
        const std::string name = "N" + std::to_string(i);
        where += "," + name + (dynamic ? "=1..2" : "=1");
        if (i % 80 == 0) body += (i > 0 ? "0\n" : "") + Numbered("t$: f32[4] t$[i]=")(i / 80);
        body += "float(" + name + ")+";
      }
      return "kernel k(x: f32[4]) -> y: f32[4] where " + where + " { " + body + "0\ny[i] = x[i]" + " }";
    });
  add("ranges, all read by all", [](size_t bytes) {
    std::string where = "N=1", inputs = "x: f32[4]", body, sum;
    for (int i = 0; where.size() + sum.size() < bytes / 2 && i < 900; ++i) {
      const std::string name = "N" + std::to_string(i);
      where += "," + name + "=1..2";
      sum += "float(" + name + ")+";
    }
    for (int i = 0; i < 255 && body.size() < bytes / 2; ++i)
      body += Numbered("t$: f32[4] t$[i]=")(i) + (i == 0 ? sum : Numbered("t^[i]+")(i)) + "x[i]\n";
    return "kernel k(" + inputs + ") -> y: f32[4] where " + where + " { " + body + "y[i] = x[i] }";
  });
  row("names that fresh names avoid", "kernel k(x: f32[4]) -> y: f32[4] where N=1", ",y_sum$=1",
      " { y[i] = x[i]" + Row(2600, "", Numbered("+sum(k<$) x[i]"), "") + " }");

  // Nesting.
  nest("parentheses", "(", "x[n]", ")");
  nest("parentheses of sums", "(1.0+", "x[n]", ")");
  nest("parentheses of quotients", "(x[n]/", "x[n]", ")");
  nest("parentheses of sums, 190", "(z[n,0]+", "x[n]", ")", 190);
  nest("minuses", "-", "x[n]", "");
  nest("nots", "if(not ", "true", ", x[n], 0)", 190);
  row("nots in a row", kHead + "if(", "not ", "true, x[n], 0) }");
  for (const char* function : {"exp(", "abs(", "relu6(", "gelu(", "gelu_tanh(", "sigmoid(", "hardswish(", "float(",
                               "f64(", "i32(", "int(", "bool(", "silu(", "relu("}) {
    nest(std::string("nested ") + function, function, "x[n]", ")");
    nest(std::string("nested ") + function + " 190", function, "x[n]", ")", 190);
    for (int most : {6, 40, 95}) {
      std::string tower;
      for (int i = 0; i < most; ++i) tower += function;
      tower += "float(n)" + std::string(static_cast<size_t>(most), ')');
      row(std::string("towers of ") + function + " " + std::to_string(most), kHead + "x[n]", "+" + tower, " }");
      std::string inside = tower;
      inside.replace(inside.find("float(n)"), 8, "float(k)");
      row(std::string("sums of towers of ") + function + " " + std::to_string(most), kHead + "x[n]",
          "*exp(sum(k<2) " + inside + ")", " }");
    }
  }
  nest("nested clamps", "clamp(", "x[n]", ", 0, 1)");
  nest("nested clamps, 90", "clamp(", "x[n]", ", 0, 1)", 90);
  nest("nested minima", "min(x[n], ", "x[n]", ")", 190);
  nest("nested ifs", "if(n < $, x[n], ", "x[n]", ")");
  nest("nested ifs, 190", "if(n < $, x[n], ", "x[n]", ")", 190);
  nest("nested conditions", "if(", "true", ", true, false)", 190);
  nest("nested hard ifs", "if(n*$ - n < $, x[min(n, 2*n)], ", "x[n]", ")", 190);
  nest("nested ifs on both sides", "if(n*$ < $, x[clamp(n + $, 0, n)] + ", "x[n]", ", x[n])", 190);
  nest("nested loads", "x[clamp(j[", "n", "],0,4)]", 60);
  nest("nested loads without end", "x[j[", "n", "]]");
  nest("nested pads", "pad(x[", "n", "], 0)");
  nest("nested sums", "sum(k$ < 2) ", "x[n]", "");
  nest("nested sums, 190", "sum(k$ < 2) ", "x[n]", "", 190);
  nest("nested sums inside functions", "exp(sum(k$ < 2) ", "x[n]", ")", 190);
  nest("nested sums that all use", "exp(sum(k$ < 2) float(k$)*", "float(k1+k2+k3+k4+k5+k6+k7+k8+k9)", ")", 90);
  add("nested sums over a long product", [](size_t bytes) {
    std::string head = kHead, close;
    for (int i = 0; i < 90; ++i) head += Numbered("exp(sum(k$ < 2) ")(i), close += ")";
    return Row(bytes, head, Numbered("x[n]*"), "x[n]" + close + " }");
  });
  add("nested sums of eight variables over a long product", [](size_t bytes) {
    std::string head = kHead, close;
    for (int i = 0; i < 90; ++i)
      head += Numbered("exp(sum(a$,b$,c$,d$,e$,f$,g$,h$) w[a$,b$,c$,d$,e$,f$,g$,h$]*")(i), close += ")";
    head.replace(head.find("x: f32"), 0, "w: f32[1,1,1,1,1,1,1,1], ");
    return Row(bytes, head, Numbered("x[n]*"), "x[n]" + close + " }");
  });
  nest("nested brackets of dimensions", "x[", "n", "]", 1 << 20);

  // Chains.
  for (const char* link :
       {"+x[n]", "-x[n]", "*x[n]", "/x[n]", "+1.5", "+inf", "-inf", "+exp(1)", "+float(n)", "+float(M)"})
    for (int most : {990, 1 << 30})
      row(std::string("chain ") + link + " " + std::to_string(most), kHead + (link[1] == 'i' ? "inf" : "x[n]"), link,
          " }", most);
  for (const char* link : {" and n < $", " or n < $", " and true", " == true"})
    for (int most : {990, 1 << 30})
      row(std::string("condition") + link + " " + std::to_string(most), kHead + "if(n == 0", link, ", x[n], 0) }",
          most);
  for (int most : {100, 990})
    row("conditions that hold for many loads, " + std::to_string(most),
        kHead + "if(" + Row(1 << 20, "n == 0", Numbered(" and n*$ < j[0]+$"), "", most) + ", 0", "+x[n+1]", ", 0) }",
        990);
  for (int most : {100, 990})
    row("conditions over indices that hold for many loads, " + std::to_string(most),
        kHead + "sum(k<9, l<9) if(" + Row(1 << 20, "n == 0", Numbered(" and n*$ < k*2+l*$+$"), "", most) + ", 0",
        "+x[n+k-l]", ", 0) }", 990);
  row("many arguments", kHead + "max(x[n]", ", x[n]", ") }");
  row("many arguments of a wrong function", kHead + "exp(x[n]", ", x[n]", ") }");
  row("many arguments of no function", kHead + "f(x[n]", ", x[n]", ") }");
  row("many pads", kHead + "x[n]", "+pad(x[n-$],0)", " }", 950);
  row("many quotients", kHead + "x[n]", "+x[n*$/(n+$)%3]", " }", 950);

  // Indices: as many ranges as there may be, in forms of many terms, and in products of towers of bounds.
  const std::string ranges = Row(1 << 20, "N=5", Numbered(", N^=1..9"), "", 60);
  for (const char* term : {"+N@", "+N@*n", "+min(N@, n*$)", "+N@*N^*0", "+N@*N@", "+(N@+$)/3", "+(n+$)%N@",
                           "+max(N@-n*$,0)", "+min(N@*n, n-$)", "+(n*$+3)/7", "+(n*$+N@)/7*n"})
    for (int most : {20, 200, 900})
      row(std::string("index of many terms ") + term + " " + std::to_string(most),
          "kernel k(x: f32[N]) -> y: f32[N] where " + ranges + " { y[n] = x[clamp(n", term, ", 0, N-1)] }", most);
  for (int most : {10, 30, 180, 900})
    for (const char* step : {"min(A^, N@)", "min(A^, N@*$)*2-N1", "max(A^-1, N@)", "A^/2+N@", "(A^+N@)%9", "A^*N@",
                             "(A^*2+N@+$)/3", "min(A^+N@, $)", "min(A^/2+N@, max(A^, $))"})
      add(std::string("product of towers ") + step + " " + std::to_string(most), [=](size_t bytes) {
        std::string where = ranges + ", A0=N0, B0=N0";
        int last = 0;
        for (; last < most && where.size() < bytes; ++last) {
          std::string other = Numbered(std::string(", B$=") + step)(last);
          std::replace(other.begin(), other.end(), 'A', 'B');
          std::replace(other.begin(), other.end(), '2', '3');
          where += Numbered(std::string(", A$=") + step)(last) + other;
        }
        const std::string at = std::to_string(last);
        return "kernel k(x: f32[N]) -> y: f32[N] where " + where + " { y[n] = x[clamp(A" + at + "*(n+B" + at + ")*A" +
               at + ", 0, N-1)] + x[n + A" + at + "*B" + at + "] }";
      });
  for (const char* load : {"x[clamp(min(n*$, l-n)*max(k*l, $-n), 0, N-1)]", "x[(n*$+k)%N]", "pad(x[n*k-l/3], 0)",
                           "x[min(max(n-$,k),N-1)]", "x[n+k-l]", "x[(n+k*l+$)%5]"})
    for (const char* condition :
         {"n < k", "n*3 < k+l and l*2 < n*k", "n != k or not l < n", "n == k and k != l and l != 2"}) {
      row(std::string("loads ") + load + " if " + condition,
          "kernel k(x: f32[N]) -> y: f32[N] where N=1..9 { y[n] = sum(k<N, l<N) if(" + std::string(condition) + ", 0",
          std::string("+") + load, ", 0) }", 900);
      nest(std::string("nested ifs ") + condition + " of " + load,
           "if(" + std::string(condition) + ", " + (load[0] == 'x' && load[2] == 'n' ? "x[n]" : load) + ", ", "x[n]",
           ")", 190);
      families.back().text = [text = families.back().text](size_t bytes) {
        std::string out = text(bytes);
        const size_t at = out.find("= ", out.find("y[n]"));
        return out.insert(at + 2, "sum(k<N, l<N) (").insert(out.rfind('}'), ")");
      };
    }
  row("index that is out of bounds", kHead + "x[n", "+n*$-$", "] }", 300);
  row("index that is out of bounds, of long names",
      "kernel k(x: f32[N]) -> y: f32[N] where N=5 { y[" + std::string(64, 'n') + "] = x[0",
      "+" + std::string(64, 'n') + "*$", "] }", 900);
  row("division by a long expression", kHead + "x[n/(0", "+N-N", ")] }", 900);

  // Many of everything.
  row("statements", "kernel k(x: f32[4]) -> y: f32[4] { t0: f32[4] t0[i] = x[i]\n", "t$: f32[4] t$[i] = t^[i]+t^[i]\n",
      "y[i] = x[i] }");
  row("statements, 250, all read", "kernel k(x: f32[4]) -> y: f32[4] { t0: f32[4] t0[i] = x[i]\n",
      "t$: f32[4] t$[i] = t^[i]+t^[i]\n", "y[i] = t250[i] }", 250);
  for (const char* part : {"x[i]*1.5+", "exp(x[i])+", "pad(x[i-1],0)+", "x[i/2]+", "if(i<2,x[i],0)+", "float(i)+",
                           "x[clamp(i*3-i/2,0,3)]+"})
    add(std::string("statements of ") + part, [=](size_t bytes) {
      std::string text = "kernel k(x: f32[4]) -> y: f32[4] { ";
      for (int s = 0; s < 250 && text.size() < bytes; ++s) {
        text += Numbered("t$: f32[4] t$[i] = ")(s);
        if (s > 0) text += Numbered("t^[i] + ")(s);
        for (int i = 0; i < 900 && text.size() < bytes; ++i) text += part;
        text += "x[i]\n";
      }
      return text + "y[i] = x[i] }";
    });
  row("sums in one statement", kHead + "x[n]", "+sum(k<$) x[n]", " }");
  row("equal sums in one statement", kHead + "x[n]", "+exp(sum(k) x[k])", " }");
  row("sums that differ at their end", kHead + "x[n]",
      "+exp(sum(k) x[k]*x[k]*x[k]*x[k]*x[k]*x[k]*x[k]*x[k]*x[k]*x[k]*$)", " }");
  row("sums of many variables", kHead + "sum(k<2", ", k$<1", ") x[n] }");
  row("sums of many variables, all used", kHead + "exp(sum(k<2", ", k$<1", ") x[n]) + exp(sum(l<2) x[n+k1*0]) }");
  row("inputs", "kernel k(x: f32[4]", ",a$:f32[]", ") -> y: f32[4] { y[i] = x[i] }");
  row("outputs", "kernel k(x: f32[4]) -> y: f32[4]", ",a$:f32[]", " { y[i] = x[i] }");
  row("dimensions", "kernel k(x: f32[4", ",1", "]) -> y: f32[4] { y[i] = x[i] }");
  row("dimensions of a view", "kernel k(x: f32[4] as [4", ",1", "]) -> y: f32[4] { y[i] = x[i] }");
  row("indices", "kernel k(x: f32[4]) -> y: f32[4] { y[i", ",a", "] = x[i] }");
  row("indices of a load", kHead + "x[n", ",0", "] }");
  row("options", "kernel k(x: f32[4]) -> y: f32[4] with threads=1", ",a$=1", " { y[i] = x[i] }");
  row("options, equal", "kernel k(x: f32[4]) -> y: f32[4] with threads=1", ",threads=1", " { y[i] = x[i] }");
  row("declarations", "kernel k(x: f32[4]) -> y: f32[4] { y[i] = x[i] ", "t$:f32[]", " }");

  // Words.
  row("comments", "", "# comment $\n", "kernel k(x: f32[4]) -> y: f32[4] { y[i] = x[i] }");
  row("a comment", "#", "#", "");
  row("blanks", "", " \n", "kernel k(x: f32[4]) -> y: f32[4] { y[i] = x[i] }");
  row("semicolons", "kernel k(x: f32[4]) -> y: f32[4] { y[i] = x[i] ", ";", "}");
  row("a long name", "kernel k(x: f32[4]) -> y: f32[4] { ", "a", "[i] = x[i] }");
  row("a long kernel name", "kernel ", "a", "(x: f32[4]) -> y: f32[4] { y[i] = x[i] }");
  row("a long kernel string", "kernel \"", "a b", "\"(x: f32[4]) -> y: f32[4] { y[i] = x[i] }");
  row("a string without end", "kernel \"", "a", "");
  row("a long whole number", kHead + "x[n] + ", "0", "1 }");
  row("a long number", kHead + "x[n] + 0.", "3", " }");
  row("a number too large", kHead + "x[n] + ", "9", " }");
  row("a long exponent", kHead + "x[n] + 1e", "0", "1 }");
  row("a long option", "kernel k(x: f32[4]) -> y: f32[4] with threads=", "9", " { y[i] = x[i] }");
  row("a long option of zeros", "kernel k(x: f32[4]) -> y: f32[4] with threads=", "0", "9999 { y[i] = x[i] }");
  row("a long word for an option", "kernel k(x: f32[4]) -> y: f32[4] with accuracy=", "a", " { y[i] = x[i] }");
  row("bytes", "", "\x01\xff", "");
  row("quotes", "kernel ", "\"", "");

  // Library operations.
  row("epilogues", "matmul(M=4,N=4,K=4)", "+relu", "");
  for (const char* epilogue : {"gelu", "hardswish", "silu", "mul", "bias", "add", "relu6", "sigmoid"})
    row(std::string("32 epilogues ") + epilogue, "conv2d(C=8,H=9,W=9,O=8,R=3,S=3,groups=2)",
        std::string("+") + epilogue, "", 32);
  row("attributes", "matmul(M=4", ",a$=1", ")");
  row("attributes, equal", "matmul(M=4", ",M=1", ")");
  row("a list", "conv2d(C=8,stride=[1", ",1", "])");
  row("an attribute of digits", "matmul(M=", "0", "1,N=4,K=4)");
  row("an attribute of nines", "matmul(M=", "9", ",N=4,K=4)");
  row("an attribute of a real", "layer_norm(M=4,N=4,eps=0.", "1", ")");
  row("threads of zeros", "matmul(M=4,N=4,K=4,threads=", "0", "9999)");
  row("an attribute of letters", "matmul(M=", "a", ",N=4,K=4)");
  row("an operation of letters", "", "a", "(M=4)");
  row("an epilogue of letters", "matmul(M=4,N=4,K=4)+", "a", "");
  row("minuses of an attribute", "matmul(M=", "-", "4,N=4,K=4)");

  // Targets and schedules.
  auto other = [&](HostileReader reader, std::string name, std::string head, std::string item, std::string tail) {
    add(std::move(name), [=](size_t bytes) { return Row(bytes, head, Numbered(item), tail); }, reader);
  };
  other(HostileReader::kTarget, "target: features", "avx2 features=a", ",a", "");
  other(HostileReader::kTarget, "target: words", "avx2", " l1=$", "");
  other(HostileReader::kTarget, "target: blanks", "avx2", " ", "");
  other(HostileReader::kTarget, "target: a long word", "avx2 ", "a", "");
  other(HostileReader::kTarget, "target: a long cpu", "avx2 cpu=", "a", "");
  other(HostileReader::kTarget, "target: a long isa", "", "a", "");
  other(HostileReader::kTarget, "target: digits", "avx2 l1=", "0", "1");
  other(HostileReader::kSchedule, "schedule: steps", "", "inline t$\n", "");
  other(HostileReader::kSchedule, "schedule: lines", "", "\n", "");
  other(HostileReader::kSchedule, "schedule: comments", "", "# $\n", "");
  other(HostileReader::kSchedule, "schedule: a comment", "#", "#", "");
  other(HostileReader::kSchedule, "schedule: factors", "split y.n", " 2", "");
  other(HostileReader::kSchedule, "schedule: loops", "reorder y.a", " y.a", "");
  other(HostileReader::kSchedule, "schedule: loops of a long name", "reorder", " " + std::string(1000, 'y') + ".a", "");
  other(HostileReader::kSchedule, "schedule: names", "rewrite fuse_axes y", " a", "");
  other(HostileReader::kSchedule, "schedule: a layout", "cache_read w -> wp for t const [o", ",o/2", "]");
  other(HostileReader::kSchedule, "schedule: a layout without end", "store t registers [o", ",o%2+3", "");
  other(HostileReader::kSchedule, "schedule: a long word", "", "a", "");
  other(HostileReader::kSchedule, "schedule: a long loop", "split y.", "a", " 2");
  other(HostileReader::kSchedule, "schedule: digits", "split y.n ", "9", "");
  other(HostileReader::kSchedule, "schedule: bytes", "", "\x01\xff ", "");
  other(HostileReader::kSchedule, "schedule: cases", "", "case M=$..$\ninline t\n", "");
  other(HostileReader::kSchedule, "schedule: ranges of a case", "case M=1..1", " $..$", "\ninline t\n");
  other(HostileReader::kSchedule, "schedule: cases of steps", "",
        "case M=$..$\n" + Row(30000, "", Same("inline t\n"), ""), "");
  return families;
}

}  // namespace hone
