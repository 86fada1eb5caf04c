import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { commonDifferences, commonKeys } from "../../../plugins/lib/docs/common_docs.ts";
import { findPlugin, loadPlugins, pluginNames } from "../../../plugins/registry.ts";
import { LINT_RULES } from "../../../networks/lint/rules.ts";
import { operatorTable } from "../bench/operator_table.ts";
import { type BenchFigures, formatMarkdown } from "../bench/table.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { lintRulesSection } from "./lint_rules.ts";
import * as pages from "./pages.ts";

export async function loadDocumentedPlugins(): Promise<pages.DocumentedPlugin[]> {
  await loadPlugins();
  return await Promise.all(
    pluginNames().map(async (name) => {
      const path = join(REPOSITORY_ROOT, "plugins", pages.folderOf(name), "docs.ts");
      if (!existsSync(path)) throw new Error(`${name} has no ${path}: see plugins/lib/docs/plugin_docs.ts`);
      return { plugin: findPlugin(name)!, docs: (await import(path)).default };
    }),
  );
}

export function generatedFiles(plugins: readonly pages.DocumentedPlugin[]): Readonly<Record<string, string>> {
  const figures: BenchFigures = JSON.parse(readText("bench/latest.json"));
  const withFigures = (path: string) => pages.withGenerated(readText(path), "times", operatorTable(figures));
  return {
    "README.md": pages.withGenerated(
      pages.withPluginCount(withFigures("README.md"), plugins.length),
      "plugins",
      pages.pluginTable(plugins),
    ),
    "docs/performance.md": pages.withGenerated(withFigures("docs/performance.md"), "figures", formatMarkdown(figures)),
    "docs/lint.md": pages.withGenerated(readText("docs/lint.md"), "rules", lintRulesSection(LINT_RULES)),
    "docs/parity.md": pages.parityPage(commonKeys, plugins),
    "docs/plugins/common.md": pages.commonPage(commonKeys, commonDifferences),
    ...Object.fromEntries(plugins.map((each) => [`docs/plugins/${each.plugin.name}.md`, pages.pluginPage(each)])),
  };
}

const readText = (path: string): string => readFileSync(join(REPOSITORY_ROOT, path), "utf8");

if (import.meta.main) {
  const files = Object.entries(generatedFiles(await loadDocumentedPlugins()));
  for (const [path, text] of files) writeFileSync(join(REPOSITORY_ROOT, path), text);
  console.log(`Wrote ${files.length} files.`);
}
