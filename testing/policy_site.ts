/**
 * A node with pods that the plugin `network-policy` has attached, behind a router in which policies may be tried:
 *
 * ```
 * outside 192.0.2.2, 2001:db8::2 ── host ── pods 10.88.0.n, fd88::n
 * ```
 *
 * @module
 */
import { test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Ip, parseCidr, parseIp } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import networkPolicy from "../plugins/network_policy/plugin.ts";
import { PolicyRuleset } from "../plugins/lib/policy/policy_ruleset.ts";
import type { Result } from "../spec/result.ts";
import { newNetns, ping, runShellInNetns, WITHOUT_DAD } from "./netns.ts";
import { connectOutside } from "./outside.ts";
import { invokePlugin, newHostContext, newRequest, restorePlugin } from "./plugin_call.ts";

/** How the host reaches pods: by a route each, or as ports of a bridge whose packets pass iptables or do not. */
export const POD_LINKS_OF_HOST = ["routed", "bridged", "bridged past iptables"] as const;
export type PodLinks = typeof POD_LINKS_OF_HOST[number];

/** A pod with its addresses. */
export interface PolicyPod {
  readonly n: number;
  readonly netns: Netns;
  readonly ips: readonly [Ip, Ip];
  readonly link: string;
  readonly result: Result;
}

/** What the plugin is called with. */
export interface PolicyCall {
  /** `false`: a container that Kubernetes does not know. */
  readonly isKubernetes?: boolean;
  readonly config?: object;
}

/** The node and how to call the plugin there. */
export interface PolicySite extends Disposable {
  readonly host: Netns;
  readonly outside: Netns;
  readonly log: string[];
  /** For `dataDir` and the socket. */
  readonly directory: string;
  /** A pod with links, without the plugin. @param ips those of another pod, or of no subnet of the site */
  newPod(n: number, ips?: readonly [Ip, Ip]): PolicyPod;
  add(pod: PolicyPod, call?: PolicyCall): void;
  del(pod: PolicyPod, call?: PolicyCall): void;
  check(pod: PolicyPod, call?: PolicyCall): void;
  restore(pod: PolicyPod, call?: PolicyCall): readonly string[];
  gc(pods: readonly PolicyPod[]): void;
}

/** @param directory for `dataDir` and the socket */
export function newPolicySite(links: PodLinks, directory: string): PolicySite {
  const resources = new DisposableStack();
  const host = resources.use(newNetns());
  const outside = resources.use(newNetns());
  const passesIptables = links === "bridged" ? 1 : 0;
  runShellInNetns(
    host,
    WITHOUT_DAD,
    "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
    `for each in /proc/sys/net/bridge/bridge-nf-call-ip*; do [ ! -w $each ] || echo ${passesIptables} >$each; done`,
  );
  if (links !== "routed") {
    runShellInNetns(
      host,
      "ip link add br0 address 02:00:00:00:00:01 type bridge",
      "ip addr add 10.88.0.1/16 dev br0; ip addr add fd88::1/64 dev br0 nodad; ip link set br0 up",
    );
  }
  connectOutside(host, outside);
  runShellInNetns(outside, "ip route add 10.88.0.0/16 via 192.0.2.1; ip route add fd88::/64 via 2001:db8::1");
  const log: string[] = [];
  const context = newHostContext({ host, log });
  const request = (
    verb: "ADD" | "DEL" | "CHECK" | "GC",
    pod: PolicyPod | undefined,
    { isKubernetes = true, config = {} }: PolicyCall = {},
    keys: object = {},
  ) => {
    const paths = { socketPath: `${directory}/socket`, dataDir: directory, waitMs: 50 };
    const document = { name: "pods", ...paths, ...pod && { prevResult: pod.result }, ...config, ...keys };
    const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=web;K8S_POD_NAME=p${pod?.n}`;
    return newRequest(networkPolicy.name, verb, document, {
      netns: pod?.netns ?? null,
      ...pod && { containerId: `c${pod.n}` },
      ...isKubernetes && pod && { env: { CNI_ARGS: args } },
    });
  };
  return {
    host,
    outside,
    log,
    directory,
    newPod(n, ips = [parseIp(`10.88.0.${n}`), parseIp(`fd88::${n}`)]) {
      const netns = resources.use(newNetns());
      const link = `veth${n}`;
      const isOnSubnet = links !== "routed" && ips[0].startsWith("10.88.");
      runShellInNetns(netns, WITHOUT_DAD);
      const master = links === "routed" ? "" : "master br0";
      runShellInNetns(host, `ip link add ${link} ${master} up type veth peer name eth0 netns ${netns.path}`);
      const [length4, length6] = isOnSubnet ? [16, 64] : [32, 128];
      runShellInNetns(
        netns,
        `ip link set lo up; ip addr add ${ips[0]}/${length4} dev eth0; ip addr add ${ips[1]}/${length6} dev eth0 nodad`,
        "ip link set eth0 up",
      );
      if (links === "routed") {
        runShellInNetns(
          host,
          `ip addr add 169.254.1.1/32 dev ${link}; ip addr add fe80::1/64 dev ${link} nodad`,
          `ip route replace ${ips[0]} dev ${link}; ip route replace ${ips[1]} dev ${link}`,
        );
        runShellInNetns(
          netns,
          "ip route add 169.254.1.1 dev eth0; ip route add default via 169.254.1.1",
          "ip route add default via fe80::1 dev eth0",
        );
      } else {
        if (!isOnSubnet) {
          runShellInNetns(host, ...ips.map((ip) => `ip route replace ${ip} dev br0`));
          runShellInNetns(netns, "ip route add 10.88.0.1 dev eth0; ip route add fd88::1 dev eth0");
        }
        runShellInNetns(netns, "ip route add default via 10.88.0.1; ip route add default via fd88::1");
      }
      // Neighbours are known before the first packet that may not take long.
      for (const ip of ips) ping(host, ip);
      const interfaces = [{ name: link }, { name: "eth0", sandbox: netns.path }];
      const addresses = [parseCidr(`${ips[0]}/${length4}`), parseCidr(`${ips[1]}/${length6}`)];
      return {
        n,
        netns,
        ips,
        link,
        result: { interfaces, ips: addresses.map((address) => ({ address, interface: 1 })) },
      };
    },
    add: (pod, call) => void invokePlugin(networkPolicy, request("ADD", pod, call), context),
    del: (pod, call) => void invokePlugin(networkPolicy, request("DEL", pod, call), context),
    check: (pod, call) => void invokePlugin(networkPolicy, request("CHECK", pod, call), context),
    restore: (pod, call) => restorePlugin(networkPolicy, request("ADD", pod, call), context),
    gc(pods) {
      const valid = pods.map(({ n }) => ({ containerID: `c${n}`, ifname: "eth0" }));
      invokePlugin(networkPolicy, request("GC", undefined, {}, { "cni.dev/valid-attachments": valid }), context);
    },
    [Symbol.dispose]: () => resources.dispose(),
  };
}

type Body = (site: PolicySite, ruleset: PolicyRuleset, resources: DisposableStack) => void | Promise<void>;

/** Defines a test on a node of its own. */
export function siteTest(links: PodLinks, name: string, body: Body, timeoutMs: number = 60_000): void {
  test(`${links}: ${name}`, async () => {
    using resources = new DisposableStack();
    const directory = mkdtempSync(join(tmpdir(), "cni-policy-"));
    resources.defer(() => rmSync(directory, { recursive: true }));
    const site = resources.use(newPolicySite(links, directory));
    await body(site, new PolicyRuleset(site.host.nft), resources);
  }, timeoutMs);
}
