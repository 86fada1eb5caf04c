/** Gateways of a bridge: what an ADD that fails leaves, which addresses are replaced, and two ADDs at once. */
import { expect, test } from "bun:test";
import { parseCidr, parseIp } from "../../ffi/address.ts";
import { type Netns, openNetns } from "../../ffi/netns/netns.ts";
import { newFixedIpam } from "../../testing/fixed_ipam.ts";
import { watchedNetns } from "../../testing/netlink.ts";
import { ipShow, linkNames, ping, runInNetns } from "../../testing/netns.ts";
import { errorOfCall, newHostContext, newRequest, respond } from "../../testing/plugin_call.ts";
import { newSandbox, type Sandbox, sandboxTest } from "../../testing/sandbox.ts";
import { createNetns } from "../../ffi/netns/netns.ts";
import bridge from "./plugin.ts";

const { fixed } = newFixedIpam();

const gatewayTest = (name: string, body: (sandbox: Sandbox) => void) => sandboxTest(name, [fixed], body);

const ipam = (address: string, gateway: string, routes: object[] = []) => ({
  type: "fixed",
  result: { ips: [{ address: parseCidr(address), gateway: parseIp(gateway) }], routes },
});
const withGateway = (address: string, gateway: string) => ({ isGateway: true, ipam: ipam(address, gateway) });
/** The container's interface is set up, and then a route is refused. */
const failing = (address: string, gateway: string) => ({
  isGateway: true,
  ipam: ipam(address, gateway, [{ dst: "198.51.100.0/24", gw: "203.0.113.1" }]),
});

/** The kernel refuses the second gateway when the first is there. */
const twoGateways = (address: string, gateway: string) => {
  const wrong = { address: parseCidr("::2/64"), gateway: parseIp("::1") };
  return { isGateway: true, ipam: { type: "fixed", result: { ips: [...ipam(address, gateway).result.ips, wrong] } } };
};

/** `10.1.2.1/24`, without link-local addresses. */
const addressesOf = (host: Netns, device = "cni0"): string[] =>
  ipShow(host, "addr", "show", device)[0].addr_info
    .filter(({ scope }: { scope: string }) => scope === "global")
    .map(({ local, prefixlen }: { local: string; prefixlen: number }) => `${local}/${prefixlen}`).sort();

/** The kernel adds the route to an address of its own some time after the address. */
function pingGateway(host: Netns, container: Netns, gateway: string): void {
  const family = gateway.includes(":") ? "-6" : "-4";
  const localRoutes = () => runInNetns(host, "ip", family, "route", "show", "table", "local");
  while (!localRoutes().includes(`local ${gateway} `)) Bun.sleepSync(5);
  ping(container, gateway);
}

gatewayTest(
  "a first ADD that fails leaves no bridge, and the corrected configuration works",
  ({ call, host, container }) => {
    const wrong: [object, string][] = [
      [
        withGateway("10.1.2.2/24", "10.9.0.1"),
        "Cannot use gateway 10.9.0.1 for 10.1.2.2/24: it is outside 10.1.2.0/24",
      ],
      [withGateway("10.1.2.2/24", "fd00::1"), "Cannot use gateway fd00::1 for 10.1.2.2/24: it is outside 10.1.2.0/24"],
      [withGateway("10.1.2.2/24", "10.1.2.2"), "that is the container's own address"],
      [
        { ...withGateway("fd00::2/64", "fd01::1"), isGateway: false, isDefaultGateway: true },
        "it is outside fd00::/64",
      ],
      [failing("10.1.3.2/24", "10.1.3.1"), "Cannot add route to 198.51.100.0/24"],
      [{ ipam: { type: "absent" } }, 'Cannot run plugin "absent"'],
    ];
    for (const [config, message] of wrong) {
      expect(() => call(bridge, "ADD", config)).toThrow(message);
      expect([message, linkNames(host), linkNames(container)]).toEqual([message, ["lo"], ["lo"]]);
    }
    call(bridge, "ADD", withGateway("10.1.2.2/24", "10.1.2.1"));
    pingGateway(host, container, "10.1.2.1");
  },
);

gatewayTest("without isGateway a gateway may lie outside its subnet", ({ call, host }) => {
  call(bridge, "ADD", { ipam: ipam("10.1.2.2/24", "10.9.0.1") });
  expect(addressesOf(host)).toEqual([]);
});

gatewayTest("an ADD that fails leaves a bridge that was there as it was", ({ call, host, newContainer }) => {
  runInNetns(host, "ip", "link", "add", "cni0", "type", "bridge");
  const fails = (config: object) =>
    expect(() => call(bridge, "ADD", config, { containerId: "f", netns: newContainer() })).toThrow(
      "Cannot add address",
    );
  fails(twoGateways("10.1.2.2/24", "10.1.2.1"));
  expect([linkNames(host), addressesOf(host)]).toEqual([["cni0", "lo"], []]);
  call(bridge, "ADD", withGateway("10.1.2.2/24", "10.1.2.1"), { netns: newContainer() });
  fails({ ...twoGateways("10.7.0.2/24", "10.7.0.1"), forceAddress: true });
  expect(addressesOf(host)).toEqual(["10.1.2.1/24"]);
  // Another attachment has the gateway, whoever added it.
  fails(twoGateways("10.1.2.3/24", "10.1.2.1"));
  expect(addressesOf(host)).toEqual(["10.1.2.1/24"]);
});

gatewayTest(
  "after a changed subnet, the gateway that no attachment has is replaced, which is said",
  ({ call, host, log, newContainer }) => {
    const attach = (containerId: string, config: object) => {
      const netns = newContainer();
      call(bridge, "ADD", config, { containerId, netns });
      return netns;
    };
    for (
      const [first, second] of [
        [withGateway("10.1.2.2/24", "10.1.2.1"), withGateway("10.1.3.2/24", "10.1.3.1")],
        [withGateway("fd00::2/64", "fd00::1"), withGateway("fd00::3/48", "fd00::9")],
      ] as const
    ) {
      attach("a", first);
      const { message, details } = errorOfCall(() => attach("b", second)) as Error & { details: string };
      const old = addressesOf(host).at(-1);
      expect(message).toEndWith(`it has ${old} already`);
      expect(details).toStartWith(`${old} is the gateway of container "a" (network "test", interface "eth0");`);
      // An attachment of another subnet does not need it.
      attach("c", { ipam: ipam("172.16.0.2/24", "172.16.0.1") });
      call(bridge, "DEL", first, { containerId: "a", netns: null });
      const container = attach("b", second);
      pingGateway(host, container, second.ipam.result.ips[0]!.gateway);
      expect(addressesOf(host)).not.toContain(old);
      expect(log.at(-1)).toEndWith(`in place of ${old}`);
      call(bridge, "DEL", second, { containerId: "b", netns: null });
      call(bridge, "DEL", second, { containerId: "c", netns: null });
    }
  },
);

gatewayTest(
  "an IPv6 gateway of a former subnet goes if it is ours and no attachment has it, and this is said",
  ({ call, host, log, newContainer }) => {
    const inSubnet = (i: number) => withGateway(`fd00:${i}::2/64`, `fd00:${i}::1`);
    const [first, second, third] = [inSubnet(1), inSubnet(2), inSubnet(3)];
    call(bridge, "ADD", first, { containerId: "a", netns: newContainer() });
    call(bridge, "DEL", first, { containerId: "a", netns: null });
    runInNetns(host, "ip", "addr", "add", "fd00:9::1/64", "dev", "cni0", "nodad");
    const container = newContainer();
    call(bridge, "ADD", second, { containerId: "b", netns: container });
    pingGateway(host, container, "fd00:2::1");
    expect(addressesOf(host)).toEqual(["fd00:2::1/64", "fd00:9::1/64"]);
    expect(log).toEqual(['bridge: Gave "cni0" gateway address fd00:2::1/64 in place of fd00:1::1/64']);
    call(bridge, "ADD", third, { containerId: "c", netns: newContainer() });
    pingGateway(host, container, "fd00:2::1");
    expect(addressesOf(host)).toEqual(["fd00:2::1/64", "fd00:3::1/64", "fd00:9::1/64"]);
    expect(log.length).toBe(1);
  },
);

gatewayTest("a gateway is in use in a container that another program attached", ({ call, host, newContainer }) => {
  call(bridge, "ADD", withGateway("10.1.2.2/24", "10.1.2.1"), { netns: newContainer() });
  call(bridge, "DEL", withGateway("10.1.2.2/24", "10.1.2.1"), { netns: null });
  const other = newContainer();
  runInNetns(
    host,
    "ip",
    "link",
    "add",
    "v1",
    "master",
    "cni0",
    "type",
    "veth",
    "peer",
    "name",
    "x",
    "netns",
    other.path,
  );
  runInNetns(other, "ip", "address", "add", "10.1.2.77/24", "dev", "x");
  const error = errorOfCall(() => call(bridge, "ADD", withGateway("10.1.3.2/24", "10.1.3.1")));
  expect(error.details).toStartWith('10.1.2.1/24 is the gateway of the container behind "v1"; or set forceAddress');
});

gatewayTest("an address that somebody else added is named with the command that removes it", ({ call, host }) => {
  runInNetns(host, "sh", "-ec", "ip link add cni0 type bridge; ip addr add 10.1.2.1/24 dev cni0");
  const add = () => call(bridge, "ADD", withGateway("10.1.3.2/24", "10.1.3.1"));
  const error = errorOfCall(add);
  expect(error.message).toBe('Cannot give "cni0" the gateway address 10.1.3.1/24: it has 10.1.2.1/24 already');
  const command = /remove it with "([^"]*)"/.exec(error.details!)![1]!;
  expect(addressesOf(host)).toEqual(["10.1.2.1/24"]);
  runInNetns(host, ...command.split(" "));
  add();
  expect(addressesOf(host)).toEqual(["10.1.3.1/24"]);
});

/** An ADD, and another one or a command that runs from beginning to end before one of the messages that the first sends. */
interface Interleaving {
  readonly first: object;
  readonly second: object | ((host: Netns) => void);
  /** Makes what is there before. */
  prepare?(sandbox: Sandbox): void;
}

/** What became of both. */
interface Outcome extends Disposable {
  readonly host: Netns;
  readonly containers: readonly [Netns, Netns];
  /** What both printed, `undefined` for success. */
  readonly errors: readonly [string | undefined, string | undefined];
  /** How many messages the first one sent. */
  readonly sent: number;
  check(config: object, index: 0 | 1): void;
}

/** @param at number of the message before which the second ADD runs; it never runs if there are fewer */
function interleave({ first, second, prepare }: Interleaving, at: number): Outcome {
  const resources = new DisposableStack();
  const sandbox = resources.use(newSandbox([fixed]));
  prepare?.(sandbox);
  const { host } = sandbox;
  const containers = [resources.use(createNetns()), resources.use(createNetns())] as const;
  const results: (object | undefined)[] = [];
  const add = (config: object, index: 0 | 1, on: Netns, open = openNetns): string | undefined => {
    const parameters = { containerId: `c${index}`, netns: containers[index] };
    const request = newRequest("bridge", "ADD", { name: "test", ...config }, parameters);
    const context = newHostContext({ host: on, openNetns: open, findPlugin: () => fixed });
    const answer = respond(bridge, request, context);
    results[index] = JSON.parse(answer.stdout);
    return answer.exitCode === 0 ? undefined : answer.stdout;
  };
  let sent = 0;
  let secondError: string | undefined = "it did not run";
  const onSend = () => {
    sent++;
    if (sent === at) {
      using sameHost = openNetns(host.path);
      secondError = typeof second === "function" ? void second(sameHost) : add(second, 1, sameHost);
    }
  };
  const watch = (netns: Netns) => watchedNetns(netns, { onSend });
  const firstError = add(first, 0, watch(host), (path) => watch(openNetns(path)));
  return {
    host,
    containers,
    errors: [firstError, secondError],
    sent,
    check(config, index) {
      const options = { containerId: `c${index}`, netns: containers[index] };
      sandbox.call(bridge, "CHECK", { ...config, prevResult: results[index] }, options);
      const { gateway } = (config as ReturnType<typeof withGateway>).ipam.result.ips[0]!;
      pingGateway(host, containers[index], gateway);
    },
    [Symbol.dispose]: () => resources.dispose(),
  };
}

/** Number of messages of an ADD that nobody disturbs. */
function messageCount(task: Interleaving): number {
  using undisturbed = interleave(task, Infinity);
  expect(undisturbed.errors[0]).toBeUndefined();
  return undisturbed.sent;
}

const SUBNET = [withGateway("10.1.2.2/24", "10.1.2.1"), withGateway("10.1.2.3/24", "10.1.2.1")] as const;

test("whenever an ADD fails and undoes what it made, another one keeps the bridge and the gateway", () => {
  const task = { first: twoGateways("10.1.2.2/24", "10.1.2.1"), second: SUBNET[1] };
  using alone = interleave(task, Infinity);
  expect(linkNames(alone.host)).toEqual(["lo"]);
  for (let at = 1;; at++) {
    using outcome = interleave(task, at);
    if (outcome.sent < at) break;
    expect([at, outcome.errors]).toEqual([at, [expect.stringContaining("Cannot add address ::1/64"), undefined]]);
    outcome.check(SUBNET[1], 1);
    expect(linkNames(outcome.containers[0])).toEqual(["lo"]);
  }
});

test("of two first ADDs that fail at once, the last one removes the bridge", () => {
  const [first, second] = [failing("10.1.2.2/24", "10.1.2.1"), failing("10.1.2.3/24", "10.1.2.1")];
  for (let at = 1;; at++) {
    using outcome = interleave({ first, second }, at);
    if (outcome.sent < at) break;
    const refusal = expect.stringContaining("Cannot add route to 198.51.100.0/24");
    expect([at, outcome.errors, linkNames(outcome.host)]).toEqual([at, [refusal, refusal], ["lo"]]);
  }
});

test("an ADD works whenever another one removes the new bridge", () => {
  const prepare = ({ host }: Sandbox) =>
    runInNetns(host, "ip", "link", "add", "cni0", "group", "0x43000001", "type", "bridge");
  const second = (host: Netns) => runInNetns(host, "sh", "-c", "ip link del group 0x43000001 2>&1 || true");
  for (let at = 1;; at++) {
    using outcome = interleave({ first: SUBNET[0], second, prepare }, at);
    expect([at, outcome.errors[0]]).toEqual([at, undefined]);
    outcome.check(SUBNET[0], 0);
    if (outcome.sent < at) break;
  }
});

/** Leaves a bridge whose gateway nobody uses. */
const leaveUnused = (config: object) => (sandbox: Sandbox) => {
  sandbox.call(bridge, "ADD", config);
  sandbox.call(bridge, "DEL", config);
};

test("two first ADDs at once share one bridge, and so do two that find an unused gateway", () => {
  for (const prepare of [() => {}, leaveUnused(withGateway("10.9.0.2/24", "10.9.0.1"))]) {
    const task = { first: SUBNET[0], second: SUBNET[1], prepare };
    const count = messageCount(task);
    for (let at = 1; at <= count; at++) {
      using outcome = interleave(task, at);
      expect([at, outcome.errors]).toEqual([at, [undefined, undefined]]);
      for (const index of [0, 1] as const) outcome.check(SUBNET[index], index);
      expect(addressesOf(outcome.host)).toEqual(["10.1.2.1/24"]);
    }
  }
});

/** Runs two ADDs, the second at each message of the first, where the bridge has the gateway of one that has ended. */
function inBothOrders(
  one: object,
  other: object,
  judge: (outcome: Outcome, at: number, configs: readonly [object, object]) => void,
): void {
  for (const [first, second] of [[one, other], [other, one]] as const) {
    const task = { first, second, prepare: leaveUnused(one) };
    for (let at = 1, count = messageCount(task); at <= count; at++) {
      using outcome = interleave(task, at);
      judge(outcome, at, [first, second]);
    }
  }
}

test("an IPv6 gateway that an ADD of another subnet is about to use is there when both are done", () => {
  const [one, other] = [withGateway("fd00:1::2/64", "fd00:1::1"), withGateway("fd00:2::2/64", "fd00:2::1")];
  inBothOrders(one, other, (outcome, at, configs) => {
    expect([at, outcome.errors]).toEqual([at, [undefined, undefined]]);
    for (const index of [0, 1] as const) outcome.check(configs[index], index);
  });
});

test("a gateway that an ADD of the earlier configuration is about to use stays, or that ADD fails", () => {
  const [earlier, later] = [withGateway("10.1.2.2/24", "10.1.2.1"), withGateway("10.1.3.3/24", "10.1.3.1")];
  inBothOrders(earlier, later, (outcome, at, configs) => {
    const succeeded = ([0, 1] as const).filter((index) => outcome.errors[index] === undefined);
    expect([at, succeeded.length]).toEqual([at, 1]);
    for (const index of succeeded) outcome.check(configs[index], index);
  });
});
