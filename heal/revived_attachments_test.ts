/** Flushes at the same moment as the DELs of an engine, which takes none of our locks. */
import { expect } from "bun:test";
import { join } from "node:path";
import { loadPlugins } from "../plugins/registry.ts";
import { byProgram, callAsEngine, healTest, removeResult, runUntil } from "../testing/healed_host.ts";
import { lockContainer } from "../runtime/lock.ts";

await loadPlugins();

healTest("an engine's DEL that has begun is not undone", (healed) => {
  const { attach, newHealer, round, nft, log } = healed;
  attach("c1");
  attach("c2");
  const healer = newHealer();
  round(healer);
  callAsEngine(healed, "portmap", "DEL", "c1");
  round(healer);
  // Its result is still there, and the bridge's DEL is to come.
  nft("flush", "ruleset");
  round(healer);
  expect(log).toEqual([byProgram("nft")]);
  expect(nft("list", "ruleset")).toContain("web c2 eth0");
  expect(nft("list", "ruleset")).not.toContain("web c1 eth0");
  callAsEngine(healed, "portmap", "ADD", "c1");
  nft("flush", "ruleset");
  round(healer);
  expect(nft("list", "ruleset")).toContain("web c1 eth0");
});

healTest("an ADD after an engine's DEL is looked after, also if it publishes no port any more", (healed) => {
  const { attach, newHealer, round, nft } = healed;
  attach("c1");
  const healer = newHealer();
  round(healer);
  for (const type of ["firewall", "portmap"]) callAsEngine(healed, type, "DEL", "c1");
  callAsEngine(healed, "firewall", "ADD", "c1");
  nft("flush", "ruleset");
  round(healer);
  expect(nft("list", "ruleset")).toContain("web c1 eth0");
});

healTest("a DEL that finds nothing, since all was flushed, leaves nothing", (healed) => {
  const { attach, newHealer, round, nft, log } = healed;
  for (const id of ["c1", "c2", "c3", "c4"]) attach(id);
  const healer = newHealer({ laterLooksMs: [1e6], resultGoneMs: [0] });
  round(healer);
  nft("flush", "ruleset");
  for (const id of ["c1", "c2"]) for (const type of ["firewall", "portmap"]) callAsEngine(healed, type, "DEL", id);
  round(healer);
  expect(nft("list", "ruleset")).toContain("web c1 eth0");
  callAsEngine(healed, "bridge", "DEL", "c1");
  removeResult(healed, "c1");
  // This one's result stays for a while, and is seen later.
  callAsEngine(healed, "bridge", "DEL", "c2");
  // This one's DEL comes later, and removes what was restored.
  for (const type of ["firewall", "portmap", "bridge"]) callAsEngine(healed, type, "DEL", "c3");
  removeResult(healed, "c3");
  for (let i = 0; i < 2; i++) round(healer);
  expect(nft("list", "ruleset")).not.toMatch(/web c[13] eth0/);
  expect(nft("list", "ruleset")).toContain("web c2 eth0");
  removeResult(healed, "c2");
  callAsEngine(healed, "bridge", "DEL", "c4");
  for (let i = 0; i < 2; i++) round(healer);
  expect(nft("list", "ruleset")).not.toContain("web c2 eth0");
  const again = (id: string) =>
    `Removed rules of "eth0" of container "${id}" on network "web" again: a DEL ran while they were restored`;
  expect(log).toEqual([byProgram("nft"), again("c1"), again("c2")]);
});

healTest("a DEL that finds nothing, and an ADD of the same name, leave the rules of the ADD", (healed) => {
  const { attach, newHealer, round, nft, log } = healed;
  attach("c1");
  const healer = newHealer({ laterLooksMs: [0] });
  round(healer);
  nft("flush", "ruleset");
  callAsEngine(healed, "portmap", "DEL", "c1");
  round(healer);
  for (const verb of ["DEL", "ADD"]) callAsEngine(healed, "portmap", verb, "c1");
  removeResult(healed, "c1");
  round(healer);
  expect(nft("list", "map", "inet", "cni", "hostports4")).toContain("web c1 eth0");
  expect(log).toEqual([byProgram("nft")]);
});

healTest("a result that goes while its attachment is restored takes the rules along", (healed) => {
  const { attach, newHealer, round, nft, log } = healed;
  attach("c1");
  const healer = newHealer({ laterLooksMs: [1e6], resultGoneMs: [0] });
  round(healer);
  nft("flush", "ruleset");
  for (const type of ["firewall", "portmap"]) callAsEngine(healed, type, "DEL", "c1");
  // All events were before the restore.
  round(healer);
  removeResult(healed, "c1");
  round(healer);
  expect(nft("list", "ruleset")).not.toContain("web c1 eth0");
  expect(log).toHaveLength(2);
});

healTest("a DEL that has removed the link gets nothing back, although its result is there", (healed) => {
  const { attach, newHealer, round, nft, log } = healed;
  attach("c1");
  const healer = newHealer();
  round(healer);
  nft("flush", "ruleset");
  for (const type of ["firewall", "portmap", "bridge"]) callAsEngine(healed, type, "DEL", "c1");
  round(healer);
  expect([nft("list", "ruleset").includes("web c1 eth0"), log]).toEqual([false, []]);
});

healTest("a container that is locked when its DEL has ended loses its rules later", (healed) => {
  const { attach, newHealer, round, nft, directory } = healed;
  attach("c1");
  const healer = newHealer({ lockWaitMs: 0, laterLooksMs: [0], firstRetryMs: 20, longestRetryMs: 40 });
  round(healer);
  nft("flush", "ruleset");
  for (const type of ["firewall", "portmap"]) callAsEngine(healed, type, "DEL", "c1");
  round(healer);
  removeResult(healed, "c1");
  {
    using _ = lockContainer(join(directory, "cache"), "c1");
    // Of all later looks, this is the last.
    round(healer);
  }
  const hasRules = () => nft("list", "ruleset").includes("web c1 eth0");
  expect(hasRules()).toBe(true);
  runUntil(healed, healer, () => !hasRules());
});
