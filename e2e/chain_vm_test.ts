/** The whole chain by `cni run`, from a root with nothing else, on an older kernel than most tests see: with real traffic. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../ffi/netns/netns.ts";
import { addDefaultRoute, newNamespaces, runInNetns } from "../testing/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, serveTcp } from "../testing/traffic.ts";
import { type MinimalRoot, newMinimalRoot } from "../testing/minimal_root.ts";

const NETWORK = {
  cniVersion: "1.1.0",
  name: "whole",
  plugins: [
    {
      type: "bridge",
      bridge: "whole0",
      isDefaultGateway: true,
      ipMasq: true,
      hairpinMode: true,
      ipam: { type: "host-local", ranges: [[{ subnet: "10.78.0.0/24" }], [{ subnet: "fd00:78::/64" }]] },
    },
    { type: "tuning", mtu: 1400, sysctl: { "net.core.somaxconn": "500" } },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "firewall" },
    { type: "bandwidth", ingressRate: 8e6, ingressBurst: 8e6, egressRate: 8e6, egressBurst: 8e6 },
  ],
};

// Without this, nothing is sent over IPv6 in the first second of a link.
const QUICK = "for each in all default; do echo 0 >/proc/sys/net/ipv6/conf/$each/accept_dad; done";

/** Outside knows the host only; what the host forwards is dropped unless somebody lets it through. */
const SURROUNDINGS = [
  "ip link set lo up; ip link set up0 up; ip addr add 192.0.2.1/24 dev up0; ip -6 addr add 2001:db8::1/64 dev up0 nodad",
  "nft add table inet own; nft 'add chain inet own pass { type filter hook forward priority 0; policy drop; }'",
];

let thin: MinimalRoot;
beforeAll(() => {
  thin = newMinimalRoot();
  writeFileSync(join(thin.root, "etc/cni/net.d/whole.conflist"), JSON.stringify(NETWORK));
});
afterAll(() => thin[Symbol.dispose]());

const shell = (netns: Netns, ...lines: readonly string[]) => runInNetns(netns, "sh", "-ec", lines.join("\n"));

/** Runs `cni run`, which must succeed and say nothing on stderr; gives what it printed. */
function run(host: Netns, words: readonly string[], hostPort?: number): string {
  const mappings = { portMappings: [{ hostPort, containerPort: 80, protocol: "tcp" }] };
  const env: Record<string, string> = hostPort === undefined ? {} : { CAP_ARGS: JSON.stringify(mappings) };
  const { stdout, ...rest } = thin.run(host, "cni", ["run", ...words], { env });
  expect(rest).toEqual({ exitCode: 0, stderr: "" });
  return stdout;
}

/** Everything that is there of containers: ports and limits, rules, reservations, what is remembered. */
function left(host: Netns): readonly string[] {
  const links = JSON.parse(runInNetns(host, "ip", "-j", "link", "show")) as { readonly ifname: string }[];
  const state = join(thin.root, "var/lib/cni");
  return [
    ...links.map(({ ifname }) => ifname).filter((name) => !["lo", "up0", "whole0"].includes(name)),
    ...runInNetns(host, "nft", "list", "ruleset").match(/.*(whole c\d|10\.78\.0\.[2-9]|fd00:78::[2-9]).*/g) ?? [],
    ...readdirSync(join(state, "networks/whole")).filter((name) => /^(10|fd00)/.test(name)),
    ...readdirSync(join(state, "results")),
  ];
}

test("the whole chain by cni run: add, check, traffic, gc of a container that is gone, del", async () => {
  using namespaces = newNamespaces();
  const { host, container } = namespaces;
  using outside = createNetns();
  shell(outside, QUICK);
  shell(host, QUICK, `ip link add up0 type veth peer name eth0 netns ${outside.path}`, ...SURROUNDINGS);
  addDefaultRoute(host);
  shell(
    outside,
    "ip addr add 192.0.2.2/24 dev eth0; ip -6 addr add 2001:db8::2/64 dev eth0 nodad; ip link set eth0 up",
  );

  const first = ["whole", container.path, "--container-id", "c1"];
  const { ips } = JSON.parse(run(host, ["add", ...first], 8080));
  expect(ips.map(({ address }: { address: string }) => address)).toEqual(["10.78.0.2/24", "fd00:78::2/64"]);
  expect(run(host, ["check", ...first])).toBe("");
  expect(shell(container, "cat /proc/sys/net/core/somaxconn; ip link show eth0")).toMatch(/^500\n.* mtu 1400 /);

  using _server = serveTcp(container, "c1", 80);
  using _outside = serveTcp(outside, "outside", 80);
  expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("c1 192.0.2.2");
  expect(await requestTcp(outside, "2001:db8::1", 8080)).toBe("c1 2001:db8::2");
  expect(await requestTcp(host, "127.0.0.1", 8080)).toBe("c1 10.78.0.1");
  expect(await requestTcp(container, "192.0.2.2", 80)).toBe("outside 192.0.2.1");
  expect(await requestTcp(container, "2001:db8::2", 80)).toBe("outside 2001:db8::1");

  const alone = left(host);
  {
    using second = createNetns();
    run(host, ["add", "whole", second.path, "--container-id", "c2"], 8081);
    expect(left(host)).toContain("whole-c2-eth0");
  }
  // What is at its path by now is something else, and it says so.
  expect(thin.run(host, "cni", ["run", "gc", "whole", "--valid", "c1/eth0"])).toMatchObject({
    exitCode: 0,
    stdout: "",
  });
  expect(left(host)).toEqual(alone);
  expect(run(host, ["check", ...first])).toBe("");
  expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("c1 192.0.2.2");

  expect(run(host, ["del", ...first], 8080)).toBe("");
  expect(await requestTcp(outside, "192.0.2.1", 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
  expect(left(host)).toEqual([]);
});
