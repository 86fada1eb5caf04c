import { expect, test } from "bun:test";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../../../testing/netns.ts";
import { newScratchDirectory } from "../repository.ts";

/** Starts a script with a campaign whose parts are functions by name. */
function startCampaign(directory: string, parts: string) {
  const script = join(directory, "campaign.ts");
  writeFileSync(
    script,
    `import { runCampaign, tryStep } from ${JSON.stringify(join(import.meta.dir, "campaign.ts"))};
    import { parseScriptOptions } from ${JSON.stringify(join(import.meta.dir, "options.ts"))};
    const parts = ${parts};
    const options = parseScriptOptions("--seed N");
    const work = (name) => tryStep(name, () => parts[name](options.count("seed", 1)));
    await runCampaign({ options, parts: Object.keys(parts), seed: 7, work });`,
  );
  return Bun.spawn([process.execPath, script], { stdin: "ignore", stdout: "pipe", stderr: "pipe" });
}

test("a campaign tells what came of each part, and fails with one of them", async () => {
  using scratch = newScratchDirectory();
  const parts = `{
    good: (seed) => { console.log("begins"); return "went well with seed " + seed; },
    bad: () => { throw new Error("it broke"); },
    dead: () => process.exit(3),
  }`;
  const campaign = startCampaign(scratch.path, parts);
  expect(await campaign.stdout.text()).toBe(
    "seed 7\nbegins\ngood: went well with seed 7\nFAILED bad\n  it broke\nFAILED dead\n  It ended early\n2 problems\n",
  );
  expect(await campaign.exited).toBe(1);
  const good = startCampaign(scratch.path, '{ good: () => "fine" }');
  expect(await good.stdout.text()).toBe("seed 7\ngood: fine\nno problem\n");
  expect(await good.exited).toBe(0);
}, 30_000);

test("an interrupted campaign sums up what was tried, and ends what runs on its nodes", async () => {
  using scratch = newScratchDirectory();
  const marker = join(scratch.path, "runs");
  const parts = `{
    first: () => "fine",
    second: async () => {
      Bun.spawnSync(["sh", "-c", "readlink /proc/self/ns/net >${marker}; exec sleep 1000"]);
      return "never";
    },
  }`;
  const campaign = startCampaign(scratch.path, parts);
  await until(() => existsSync(marker) && readFileSync(marker, "utf8").endsWith("\n"));
  campaign.kill("SIGTERM");
  expect(await campaign.stdout.text()).toBe("seed 7\nfirst: fine\nno problem\n");
  expect(await campaign.stderr.text()).toMatch(/^first ended after \d+ s, 1 of 2\nSIGTERM: not all was tried\n$/);
  expect(await campaign.exited).toBe(130);
  const netns = readFileSync(marker, "utf8").trim();
  await until(() => !Bun.spawnSync(["lsns", "-t", "net", "-n", "-o", "NS"]).stdout.includes(/\d+/.exec(netns)![0]));
}, 30_000);
