import { printStdout } from "../../ffi/sys/stdio.ts";
import { formatDocument } from "../output/document.ts";
import { suggestion } from "../../spec/suggest.ts";
import { absolutePath } from "../arguments/path.ts";
import {
  CACHE_DIR_OPTION,
  CONF_DIR_OPTION,
  JSON_OPTION,
  PLUGIN_DIR_OPTION,
  pluginDirectories,
} from "../arguments/runtime.ts";
import type { Command } from "../command.ts";
import { loadDocumentedBuiltins } from "../documented_builtins.ts";
import type { ParsedOptions } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";
import { openScreen } from "../output/screen.ts";

const lint: Command = {
  name: "lint",
  summary: "find every mistake in network configurations",
  description:
    `Nothing is changed and no plugin is run. Without FILE, the directory of network configurations is checked.
The exit status is 1 after an error; with --strict also after a warning. Notes never count.
The comment "// cni-lint-disable RULE" in a file switches off a rule for it.`,
  arguments: [{
    name: "FILE",
    help: "a file, a directory of network configurations, or - for stdin",
    optional: true,
    several: true,
  }],
  options: [
    { name: "strict", help: "exit with status 1 after warnings, too" },
    { name: "disable", value: "RULE", help: "switch off a rule; may be repeated" },
    { name: "given-ranges", help: "for the network of a cluster, whose nodes write missing ranges into it" },
    { ...JSON_OPTION, help: "print JSON, as with --format json" },
    CONF_DIR_OPTION,
    PLUGIN_DIR_OPTION,
    { ...CACHE_DIR_OPTION, help: "as for other commands; lint reads no attachments" },
  ],
  examples: [
    { command: "cni lint", about: "check /etc/cni/net.d" },
    { command: "cni lint --strict --disable comments ./web.conflist", about: "check one file, before a deployment" },
  ],
  async run(input, context) {
    const { lintFiles, lintRuleNames } = await import("../../networks/lint/lint.ts");
    const disabled = disabledRuleNames(input, lintRuleNames());
    const words = input.words.length > 0 ? input.words : [input.find(CONF_DIR_OPTION.name) ?? "/etc/cni/net.d"];
    const paths = words.map((word) => word.includes("/") ? absolutePath(word, context) : word);
    await loadDocumentedBuiltins();
    const report = lintFiles(paths, {
      pluginDirectories: pluginDirectories(input, context),
      disabled,
      givesRanges: input.has("given-ranges"),
    });
    const { formatLintReport } = await import("../output/lint_report.ts");
    printStdout(
      input.has(JSON_OPTION.name)
        ? formatDocument(report)
        : formatLintReport(report, paths, openScreen(1, context.env)),
    );
    const failing = input.has("strict") ? ["error", "warning"] : ["error"];
    return report.problems.some(({ severity }) => failing.includes(severity)) ? 1 : 0;
  },
};
export default lint;

function disabledRuleNames(input: ParsedOptions, ruleNames: readonly string[]): readonly string[] {
  const disabled = input.list("disable").flatMap((text) => text.split(","));
  const unknown = disabled.find((name) => !ruleNames.includes(name));
  if (unknown === undefined) return disabled;
  const hint = suggestion(unknown, ruleNames) || `; there are ${ruleNames.join(", ")}`;
  throw new UsageError(`--disable: there is no rule "${unknown}"${hint}`);
}
