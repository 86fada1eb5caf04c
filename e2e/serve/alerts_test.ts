/** The alert rules and the settings of Prometheus that docs/metrics.md shows, by promtool of Debian's package "prometheus". */
import { describe, expect, test } from "bun:test";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../../scripts/src/repository.ts";
import { testWith } from "../../testing/binary.ts";

const RULES = join(REPOSITORY_ROOT, "docs/alerts.yaml");
const PAGE = readFileSync(join(REPOSITORY_ROOT, "docs/metrics.md"), "utf8");
const ALERTS = Array.from(readFileSync(RULES, "utf8").matchAll(/alert: (\w+)/g), ([, name = ""]) => name);

/** Runs it where the rules are, and a file. */
function promtool(words: readonly string[], file: string, text: string): string {
  const directory = mkdtempSync(join(tmpdir(), "cni-alerts-"));
  try {
    copyFileSync(RULES, join(directory, "alerts.yaml"));
    writeFileSync(join(directory, file), text);
    const { stdout, stderr } = Bun.spawnSync(["promtool", ...words, file], { cwd: directory, stderr: "pipe" });
    return `${stdout}${stderr}`;
  } finally {
    rmSync(directory, { recursive: true });
  }
}

testWith(["promtool"], "promtool accepts the rules, and the settings that name them", () => {
  const settings = /^```yaml\n(.+?)^```$/ms.exec(PAGE)?.[1] ?? "";
  const said = promtool(["check", "config"], "prometheus.yml", settings);
  expect(said).toContain("SUCCESS: 1 rule files found");
  expect(said).toContain(`SUCCESS: ${ALERTS.length} rules found`);
});

test("the page names each alert, and each metric that they read", () => {
  const metrics = readFileSync(RULES, "utf8").match(/\bcni_[a-z_]+/g) ?? [];
  const words = [...ALERTS, ...metrics.map((name) => name.replace(/_(bucket|count|sum)$/, ""))];
  expect(words.length).toBeGreaterThan(ALERTS.length);
  expect(words.filter((word) => !PAGE.includes(`\`${word}\``))).toEqual([]);
});

/** Series for an hour, as promtool reads them: `0+1x60` begins at 0 and grows by 1 each minute. */
const TROUBLE = {
  'up{job="cni"}': "0x60",
  'cni_calls_total{command="ADD",program="bridge",code="11"}': "0+1x60",
  'cni_call_duration_seconds_bucket{command="ADD",le="1"}': "0x60",
  'cni_call_duration_seconds_bucket{command="ADD",le="5"}': "0+1x60",
  'cni_call_duration_seconds_bucket{command="ADD",le="+Inf"}': "0+1x60",
  'cni_addresses{network="small",pool="p",state="used"}': "95x60",
  'cni_addresses{network="small",pool="p",state="free"}': "5x60",
  "cni_restore_backoffs_total": "0+1x60",
  "cni_restores_total": "0+1x60",
  "cni_link_problems_total": "0+1x60",
  'cni_fallbacks_total{reason="withdrawn"}': "0+60x60",
  'cni_process_starts_total{process="heal"}': "0+1x60",
  "cni_cluster_problems": "1x60",
  "cni_cluster_heard_timestamp_seconds": "0x60",
  "cni_cluster_repairs_total": "0+1x60",
};
const HEALTH = {
  'up{job="cni"}': "1x60",
  'cni_calls_total{command="ADD",program="bridge",code="0"}': "0+9x60",
  'cni_calls_total{command="ADD",program="bridge",code="11"}': "3x60",
  'cni_call_duration_seconds_bucket{command="ADD",le="1"}': "0+9x60",
  'cni_call_duration_seconds_bucket{command="ADD",le="+Inf"}': "0+9x60",
  'cni_addresses{network="large",pool="p",state="used"}': "0x60",
  'cni_addresses{network="large",pool="p",state="free"}': "100x60",
  "cni_restore_backoffs_total": "3x60",
  "cni_restores_total": "7x60",
  "cni_link_problems_total": "2x60",
  'cni_fallbacks_total{reason="withdrawn"}': "4x60",
  'cni_process_starts_total{process="heal"}': "1x60",
  'cni_process_starts_total{process="worker"}': "0+1x60",
  "cni_cluster_problems": "0x60",
  "cni_cluster_heard_timestamp_seconds": "0+60x60",
  "cni_cluster_repairs_total": "7x60",
};

describe.each([["fires in trouble", TROUBLE, ALERTS], ["is silent in health", HEALTH, []]] as const)(
  "each alert %s",
  (_, series, firing) => {
    testWith(["promtool"], "as promtool computes it", () => {
      const tests = {
        rule_files: ["alerts.yaml"],
        tests: [{
          interval: "1m",
          input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
          promql_expr_test: [{
            expr: 'count by (alertname) (ALERTS{alertstate="firing"})',
            eval_time: "50m",
            exp_samples: firing.map((alertname) => ({ labels: `{alertname="${alertname}"}`, value: 1 })),
          }],
        }],
      };
      expect(promtool(["test", "rules"], "tests.yaml", JSON.stringify(tests))).toContain("SUCCESS");
    });
  },
);
