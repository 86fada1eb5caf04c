import { afterAll, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createEntry } from "../../runtime/cache.ts";
import { cliContext } from "../../testing/cli.ts";
import { CNI } from "../commands/registry.ts";
import { findCandidates, kindsOf } from "./candidates.ts";
import { completeWords } from "./complete.ts";

const root = mkdtempSync(join(tmpdir(), "cni-complete-"));
afterAll(() => rmSync(root, { recursive: true }));
const [conf, cache] = [join(root, "conf"), join(root, "cache")];
mkdirSync(conf);
for (const name of ["web", "db"]) {
  writeFileSync(join(conf, `${name}.conflist`), JSON.stringify({ name, plugins: [{ type: "bridge" }] }));
}
writeFileSync(join(conf, "broken.conflist"), "{");
for (const [network, containerId] of [["web", "c1"], ["db", "c2"]] as const) {
  createEntry(cache, { network, containerId, ifname: "eth0", config: "", args: [], capabilityArgs: {} });
}

/** @param line behind `cni`, up to the cursor */
async function complete(line: string): Promise<string> {
  const { candidates, paths } = await completeWords(CNI, line.split(" "), cliContext({ NETCONFPATH: conf }));
  return [...candidates.map(({ word }) => word), ...paths === "none" ? [] : [paths]].join(" ");
}

test.each([
  ["ins", "install"],
  ["nosuch ", ""],
  ["run lis", "list"],
  ["run rm ", "db web default"],
  ["netns ex", "exec"],
  ["run add ", "db web default"],
  ["run add w", "web"],
  ["run add -- w", "web"],
  ["run add ./w", "files"],
  ["run --conf-dir /nowhere list ", "default"],
  ["run list --conf-dir=/nowhere ", "default"],
  ["run list --conf-di", "--conf-dir"],
  ["run list --conf-dir ", "directories"],
  ["run list --conf-dir=", "directories"],
  ["run list web ", ""],
  ["run derive --command D", "DEL"],
  ["run derive --command=D", "--command=DEL"],
  ["run add -p 80:80 w", "web"],
  ["run add -p80:80 w", "web"],
  ["run add web /run/netns/x extra ", ""],
  [`run del web --cache-dir ${cache} --container-id `, "c1"],
  [`run gc db --cache-dir ${cache} --valid `, "c2/eth0"],
  [`run gc db --cache-dir ${cache} --valid c1`, ""],
  ["plugin host-", "host-device host-local"],
  ["serve --log-format ", "text json"],
  ["completion ", "bash zsh fish"],
  ["help run de", "del derive"],
  ["help nosuch ", ""],
  ["install /op", "directories"],
  ["complete", ""],
  ["netns exec web cmd --he", "files"],
])("completes %j", async (line, expected) => {
  expect(await complete(line)).toBe(expected);
});

test("keys of plugins follow a dot", async () => {
  expect(kindsOf("PLUGIN")).toEqual(["plugin"]);
  const request = { root: CNI, findDirectory: () => "" };
  const keys = await findCandidates("key", { ...request, current: "tuning.s" });
  expect(keys).toContainEqual({ word: "tuning.sysctl", about: expect.any(String) });
  const words = (await findCandidates("key", { ...request, current: "bridge." })).map(({ word }) => word);
  expect(words).toContain("bridge.vlanTrunk.minID");
  expect(words).toContain("bridge.CNI_ARGS.MAC");
  expect(await findCandidates("key", { ...request, current: "nosuch." })).toEqual([]);
  expect(await findCandidates("key", { ...request, current: "tun" })).toContainEqual({
    word: "tuning",
    about: expect.any(String),
  });
});
