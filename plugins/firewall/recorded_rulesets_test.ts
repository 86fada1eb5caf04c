/**
 * A container beside the programs that make a host's ruleset: Docker, ufw, firewalld, and kube-proxy's rules.
 *
 * `testdata/rulesets` has what they make; the first line of each file says which version did. `scripts/record_rulesets` records them anew.
 *
 * @module
 */
import { expect } from "bun:test";
import { testWith } from "../../testing/binary.ts";
import { type ConnectivityHost, loadRecording, newConnectivityHost, without } from "../../testing/connectivity.ts";
import { FIREWALLD_PROGRAMS, runOnBus, startBus, startFirewalld } from "../../testing/firewalld.ts";
import { createNetns } from "../../ffi/netns/netns.ts";
import { runShellInNetns } from "../../testing/netns.ts";
import { comparisonTest, ourPlugins, type PluginSet, referencePlugins } from "../../testing/reference_host.ts";
import { foreignRuleset } from "../../testing/ruleset.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp } from "../../testing/traffic.ts";

const START_MS = 60_000;

/** What is known of a container must be gone with it. */
const TRACES = ["10.1.0.2", "fd01::2", "net c1 eth0"];

interface Recording {
  readonly name: string;
  readonly recording: string;
  /** Where the program puts rules into chains in which others stand. */
  readonly place: "behind" | "before";
  /** Further rules, in the words of the shell. */
  readonly more?: string;
  /** The flows that do not get through. */
  readonly cut: string;
  readonly cutByReference: string;
}
/** These drop what is forwarded and nobody accepted. */
const DROPPED = { cut: "in", cutByReference: "in, published" };
const SAME = (cut: string) => ({ cut, cutByReference: cut });
const RECORDINGS: readonly Recording[] = [
  { name: "Docker's rules", recording: "docker", place: "before", ...DROPPED },
  { name: "ufw's rules", recording: "ufw", place: "behind", ...DROPPED },
  {
    name: "firewalld's rules for the container, without a firewalld",
    recording: "firewalld-with-container",
    place: "behind",
    ...SAME("in"),
  },
  {
    // It is told or not: nobody else changes its table.
    name: "firewalld's rules, without a firewalld to be told",
    recording: "firewalld",
    place: "behind",
    ...SAME("out, in"),
  },
  { name: "kube-proxy's rules, mode iptables", recording: "kube-proxy-iptables", place: "before", ...SAME("") },
  { name: "kube-proxy's rules, mode nftables", recording: "kube-proxy-nftables", place: "before", ...SAME("") },
  {
    name: "kube-proxy's rules, mode iptables, and policy DROP",
    recording: "kube-proxy-iptables",
    place: "before",
    more: "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP",
    ...DROPPED,
  },
];

/** What a cluster's services answer: a cluster address and a node's port lead to the container, another address out of it. */
async function services({ container, outside }: ConnectivityHost): Promise<Record<string, string | undefined>> {
  runShellInNetns(outside, "ip route add 10.96.0.0/16 via 192.0.2.1; ip route add fd96::/112 via 2001:db8::1");
  const calls = [
    [outside, "10.96.0.10", 80],
    [outside, "fd96::10", 80],
    [outside, "192.0.2.1", 30080],
    [outside, "2001:db8::1", 30080],
    [container, "10.96.0.11", 80],
    [container, "fd96::11", 80],
  ] as const;
  const answers = calls.map(async ([from, address, port]) =>
    [`${address} ${port}`, await requestTcp(from, address, port)] as const
  );
  return Object.fromEntries(await Promise.all(answers));
}
const SERVICES = {
  "10.96.0.10 80": "container 10.1.0.1",
  "fd96::10 80": "container fd01::1",
  "192.0.2.1 30080": "container 10.1.0.1",
  "2001:db8::1 30080": "container fd01::1",
  "10.96.0.11 80": "outside 192.0.2.1",
  "fd96::11 80": "outside 2001:db8::1",
};

/** The lines of the ruleset that name the container. */
const traces = (ruleset: string): string[] =>
  ruleset.split("\n").filter((line) => TRACES.some((trace) => line.includes(trace)));

/** The recording where there is nothing else. */
function loadedAlone(recording: string, more: string): string {
  using host = createNetns();
  loadRecording(host, recording);
  runShellInNetns(host, more);
  return foreignRuleset(host);
}

for (const { name, recording, place, more = "", cut, cutByReference } of RECORDINGS) {
  for (const order of ["before", "after"]) {
    comparisonTest(`${name}, made ${order} the ADD: where the reference connects, so does this program`, async () => {
      using reference = await newConnectivityHost();
      using ours = await newConnectivityHost();
      const attach = (world: ConnectivityHost, side: PluginSet) => {
        if (order === "before") loadRecording(world.host, recording);
        const attachment = world.attach(side);
        if (order === "after") loadRecording(world.host, recording, place);
        runShellInNetns(world.host, more);
        return attachment;
      };
      attach(reference, referencePlugins);
      const { check, del } = attach(ours, ourPlugins);
      const [byReference, byOurs] = await Promise.all([reference.reached(cutByReference), ours.reached(cut)]);
      expect([Object.keys(byReference), Object.keys(byOurs)]).toEqual([without(cutByReference), without(cut)]);
      expect(byOurs).toMatchObject(byReference);
      if (recording.startsWith("kube-proxy")) {
        expect(await Promise.all([services(reference), services(ours)])).toEqual([SERVICES, SERVICES]);
        // The container itself, where the reference depends on who was there first; and a service that nobody serves.
        expect(await requestTcp(ours.container, "10.96.0.10", 80)).toBe("container 10.1.0.1");
        expect(await requestTcp(ours.container, "fd96::10", 80)).toBe("container fd01::1");
        expect(await requestTcp(ours.container, "10.96.0.12", 80, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
      }
      if (byOurs["out tcp 4"]) check();
      del();
      const left = foreignRuleset(ours.host);
      const alone = loadedAlone(recording, more);
      expect(left.split("\n")).toEqual(expect.arrayContaining(alone.split("\n")));
      expect(traces(left)).toEqual(traces(alone));
    });
  }
}

testWith(
  FIREWALLD_PROGRAMS,
  "firewalld that runs is told of the container: where the reference connects, so does this program",
  async () => {
    using bus = await startBus();
    using world = await newConnectivityHost({ env: { DBUS_SYSTEM_BUS_ADDRESS: bus.address } });
    using _firewalld = await startFirewalld(world.host, bus);
    const sources = () => runOnBus(world.host, bus, "firewall-cmd --zone=trusted --list-sources").trim();
    const seen: object[] = [];
    for (const side of [referencePlugins, ourPlugins]) {
      const { check, del } = world.attach(side);
      seen.push(await world.reached("in"));
      expect(sources()).toBe("10.1.0.2/32 fd01::2/128");
      if (side === ourPlugins) check();
      del();
      expect(sources()).toBe("");
      expect(traces(foreignRuleset(world.host))).toEqual([]);
    }
    expect(Object.keys(seen[0]!)).toEqual(without("in"));
    expect(seen[1]).toEqual(seen[0]!);
  },
  START_MS,
);
