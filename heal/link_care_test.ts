/** Bridges and ports that lose something on a host of the test's own. */
import { expect } from "bun:test";
import { join } from "node:path";
import { createNetns } from "../ffi/netns/netns.ts";
import { loadPlugins } from "../plugins/registry.ts";
import { forbidDescriptors } from "../testing/descriptor_limit.ts";
import { healTest, newHealedHost, runUntil } from "../testing/healed_host.ts";
import { ipShow } from "../testing/netns.ts";

await loadPlugins();

healTest("a bridge that lost its address and a port that lost its bridge are reported once", (healed) => {
  const { attach, newHealer, round, shell, log, counts, host } = healed;
  attach("c1");
  attach("c2");
  const healer = newHealer();
  round(healer);
  const port = ipShow(host, "link", "show", "master", "br-web")[0].ifname;
  shell("ip address del 10.7.0.1/24 dev br-web", `ip link set ${port} nomaster`);
  round(healer);
  round(healer);
  const problems = [
    expect.stringMatching(
      new RegExp(`^Network "web": "${port}", the host's end of .*, is no port of bridge "br-web"$`),
    ),
    'Network "web": gateway address 10.7.0.1/24 is missing on "br-web"',
  ];
  expect([log, counts]).toEqual([problems, ["linkProblems", "linkProblems"]]);
  // A look that finds nothing new.
  shell("ip address add 10.99.0.1/24 dev br-web", "ip address del 10.99.0.1/24 dev br-web");
  round(healer);
  expect(log).toHaveLength(2);
  shell("ip link del br-web");
  round(healer);
  expect(log.slice(2)).toContain('Network "web": bridge "br-web" is missing');
});

healTest("with healLinks, they get it back", (healed) => {
  const { attach, newHealer, round, shell, log, host } = healed;
  attach("c1");
  const healer = newHealer({}, ["cache"], true);
  round(healer);
  const links = () =>
    [ipShow(host, "address", "show", "br-web")[0].addr_info, ipShow(host, "link", "show", "master", "br-web")]
      .map((all) =>
        all.map(({ local, ifname }: Record<string, string>) => local ?? ifname).filter((text: string) =>
          !text.startsWith("fe80")
        )
      );
  const before = links();
  for (let i = 0; i < 2; i++) {
    log.length = 0;
    shell("ip address flush dev br-web", `ip link set ${before[1][0]} nomaster`);
    round(healer);
    expect(links()).toEqual(before);
    expect(log.filter((line) => line.startsWith("Mended: "))).toHaveLength(2);
  }
});

healTest("links that keep losing what is mended get it back after pauses", (healed) => {
  const { attach, newHealer, round, shell, log, counts, host } = healed;
  attach("c1");
  const healer = newHealer({ fightWindowMs: 1e6, freeRounds: 1, firstPauseMs: 1e6 }, ["cache"], true);
  round(healer);
  for (let i = 0; i < 2; i++) {
    shell("ip address del 10.7.0.1/24 dev br-web");
    round(healer);
  }
  expect(log).toEqual([
    'Network "web": gateway address 10.7.0.1/24 is missing on "br-web"',
    'Mended: Network "web": gateway address 10.7.0.1/24 is missing on "br-web"',
    "Links lost 1 times in a row what was mended: the next time it is mended after 1000 s",
  ]);
  expect(counts).toEqual(["linkProblems", "backoffs"]);
  expect(JSON.stringify(ipShow(host, "address", "show", "br-web"))).not.toContain("10.7.0.1");
});

healTest("what cannot be mended is tried again until it can, and named once", (healed) => {
  const { attach, newHealer, round, shell, log, host } = healed;
  attach("c1");
  const healer = newHealer({ firstRetryMs: 20, longestRetryMs: 40 }, ["cache"], true);
  round(healer);
  const [{ ifname: port }] = ipShow(host, "link", "show", "master", "br-web");
  const isPort = () => ipShow(host, "link", "show", "master", "br-web").length === 1;
  // A link with a macvlan cannot be a port.
  shell(`ip link set ${port} nomaster`, `ip link add mv0 link ${port} type macvlan`);
  round(healer);
  for (let i = 0; i < 4; i++) {
    Bun.sleepSync(healer.timeoutMs());
    round(healer);
  }
  const problem = expect.stringMatching(/^Network "web": .* is no port of bridge "br-web"$/);
  expect([isPort(), log]).toEqual([false, [problem, expect.stringMatching(/^Cannot mend: .*EBUSY/)]]);
  shell("ip link del mv0");
  runUntil(healed, healer, isPort);
  expect(log.slice(2)).toEqual([expect.stringMatching(/^Mended: /)]);
});

healTest("links are looked at again when there are descriptors again", (healed) => {
  const { attach, newHealer, round, shell, log, host } = healed;
  attach("c1");
  const healer = newHealer({ firstRetryMs: 20, longestRetryMs: 40 }, ["cache"], true);
  round(healer);
  shell("ip address del 10.7.0.1/24 dev br-web");
  host.run<void>(() => {
    using _ = forbidDescriptors();
    healer.round();
  });
  const hasAddress = () => JSON.stringify(ipShow(host, "address", "show", "br-web")).includes("10.7.0.1");
  runUntil(healed, healer, hasAddress);
  expect(log.slice(1, 3)).toEqual([
    expect.stringContaining("Looking after attachments in"),
    'Network "web": gateway address 10.7.0.1/24 is missing on "br-web"',
  ]);
});

healTest("links that go with their containers are no reason to look", (healed) => {
  const { attach, newHealer, round, host, runtime, log, shell } = healed;
  attach("c1");
  attach("c2");
  const healer = newHealer();
  round(healer);
  shell("ip address del 10.7.0.1/24 dev br-web");
  round(healer);
  shell("ip link add d0 type bridge", "ip address add 10.99.0.1/24 dev d0", "ip link del d0");
  host.run(() => runtime().del("web", { containerId: "c2", ifname: "eth0" }));
  round(healer);
  expect([log.length, healer.timeoutMs()]).toEqual([1, Infinity]);
});

healTest(
  "a bridge of the same name in another network namespace is left alone, although it has the same cache",
  (healed) => {
    using resources = new DisposableStack();
    const other = newHealedHost(resources.use(createNetns()), resources);
    const caches = [join(healed.directory, "cache")];
    healed.attach("c1");
    other.shell("ip link add br-web type bridge", "ip link set br-web up");
    other.round(other.newHealer({}, caches, true));
    expect([other.log, ipShow(other.host, "-4", "address", "show", "br-web")[0]?.addr_info ?? []]).toEqual([[], []]);
    healed.shell("ip address del 10.7.0.1/24 dev br-web");
    healed.round(healed.newHealer({}, caches, true));
    expect(ipShow(healed.host, "-4", "address", "show", "br-web")[0].addr_info[0].local).toBe("10.7.0.1");
  },
);
