/** A container that changes its hardware address while it is attached gains nothing by it. */
import { beforeAll, expect } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as link from "../../ffi/route/link.ts";
import { openNetns } from "../../ffi/netns/netns.ts";
import { newFixedIpam } from "../../testing/fixed_ipam.ts";
import { interruptNetns } from "../../testing/interrupted_netns.ts";
import { type Namespaces, netnsTest, runInNetns, runIp } from "../../testing/netns.ts";
import { errorOfCall, invokePlugin, newHostContext, newRequest, restorePlugin } from "../../testing/plugin_call.ts";
import { parseCidr } from "../../ffi/address.ts";
import { plugin } from "../lib/protocol/plugin.ts";
import bridge from "./plugin.ts";
import { findPlugin, loadPlugins } from "../registry.ts";

beforeAll(() => loadPlugins(["tuning"]));
const { fixed } = newFixedIpam();
const IPAM = { type: "fixed", result: { ips: [{ address: parseCidr("10.1.2.2/24") }] } };
const FORGED = "0a:00:00:00:66:66";

/** One ADD, during which the container acts before its request of this number. */
function add({ host, container }: Namespaces, config: object, at: number, act: () => void) {
  let interrupted: ReturnType<typeof interruptNetns> | undefined;
  const context = newHostContext({
    host,
    findPlugin: (type) => type === "fixed" ? fixed : undefined,
    openNetns: () => interrupted = interruptNetns(openNetns(container.path), at, act),
  });
  const request = newRequest("bridge", "ADD", { bridge: "br0", ...config }, { netns: container });
  const outcome: { mac?: string; error?: string } = {};
  try {
    const { interfaces } = invokePlugin(bridge, request, context) as { interfaces: { name: string; mac: string }[] };
    outcome.mac = interfaces.find(({ name }) => name === "eth0")!.mac;
  } catch (error) {
    outcome.error = (error as Error).message;
  }
  return { ...outcome, requests: interrupted!.requests };
}

const allowed = ({ host }: Namespaces) =>
  [...runInNetns(host, "nft", "list", "ruleset").matchAll(/"(veth\w+)" \. (\S+) comment/g)].map(([, , mac]) => mac);

for (const [what, config] of Object.entries({ "without IPAM": {}, "with an address": { ipam: IPAM } })) {
  netnsTest(
    `macspoofchk allows the address that the container was given, whenever it changes that, ${what}`,
    (namespaces) => {
      const { host, container } = namespaces;
      const change = () =>
        void container.run(() => Bun.spawnSync(["ip", "link", "set", "eth0", "address", FORGED], { stderr: "ignore" }));
      let refused = 0;
      let at = 0;
      // Until there are no more requests than that.
      for (let requests = Infinity; requests >= at;) {
        const outcome = add(namespaces, { ...config, macspoofchk: true }, ++at, change);
        requests = outcome.requests;
        if (outcome.error) {
          refused++;
          expect(outcome.error).toMatch(`it changed the MAC address of "eth0" from`);
          expect([allowed(namespaces), link.find(container.route, "eth0")]).toEqual([[], undefined]);
          continue;
        }
        expect(outcome.mac).not.toBe(FORGED);
        expect(allowed(namespaces)).toEqual([outcome.mac!]);
        runIp(container, "link del eth0");
        runInNetns(host, "nft", "flush", "ruleset");
      }
      expect(refused).toBeGreaterThan(0);
    },
  );
}

netnsTest("without macspoofchk the container may choose its address at any time", (namespaces) => {
  const change = () => runIp(namespaces.container, `link set eth0 address ${FORGED}`);
  expect(add(namespaces, {}, 2, change).error).toBeUndefined();
});

netnsTest("each container has an address of its own, which the runtime may choose", ({ host, container }) => {
  const context = newHostContext({ host });
  const config = { bridge: "br0", macspoofchk: true };
  const macs = ["eth0", "eth1", "eth2"].map((ifname) => {
    invokePlugin(bridge, newRequest("bridge", "ADD", config, { netns: container, ifname }), context);
    return link.get(container.route, ifname).mac!;
  });
  expect(new Set(macs).size).toBe(3);
  // Locally administered, and of one interface.
  for (const mac of macs) expect(mac).toMatch(/^.[26ae]:/);
  const runtimeConfig = { mac: "0a:00:00:00:00:07" };
  invokePlugin(
    bridge,
    newRequest("bridge", "ADD", { ...config, runtimeConfig }, { netns: container, ifname: "net7" }),
    context,
  );
  expect(link.get(container.route, "net7").mac as string).toBe(runtimeConfig.mac);
  expect(
    errorOfCall(() => invokePlugin(bridge, newRequest("bridge", "ADD", config, { netns: container }), context)).message,
  )
    .toContain("the container has an interface of that name");
});

netnsTest("where the result names no address, restore believes none and says so", ({ host, container }) => {
  const log: string[] = [];
  const context = newHostContext({ host, findPlugin: () => fixed, log });
  const config = { bridge: "br0", macspoofchk: true, cniVersion: "0.2.0", ipam: IPAM };
  const prevResult = invokePlugin(bridge, newRequest("bridge", "ADD", config, { netns: container }), context);
  const restore = () =>
    restorePlugin(bridge, newRequest("bridge", "ADD", { ...config, prevResult }, { netns: container }), context);
  expect(restore()).toEqual([]);
  runIp(container, `link set eth0 address ${FORGED}`);
  const before = runInNetns(host, "nft", "list", "ruleset");
  expect(restore).toThrow("Cannot restore macspoofchk");
  expect(runInNetns(host, "nft", "list", "ruleset")).toBe(before);
});

netnsTest(
  "who gives the container another address behind the bridge has it allowed, and that one alone",
  (namespaces) => {
    const { host, container } = namespaces;
    const context = newHostContext({ host });
    const config = { bridge: "br0", macspoofchk: true };
    const mac = "0a:00:00:00:00:07";
    const tuning = findPlugin("tuning")!;
    const dataDir = mkdtempSync(join(tmpdir(), "cni-spoof-"));
    using cleanup = new DisposableStack();
    cleanup.defer(() => rmSync(dataDir, { recursive: true }));
    const add = (ifname: string) =>
      invokePlugin(bridge, newRequest("bridge", "ADD", config, { netns: container, ifname }), context);
    const tune = (prevResult: unknown, plugin = tuning) => {
      const request = newRequest("tuning", "ADD", { dataDir, mac, prevResult }, { netns: container });
      return invokePlugin(plugin, request, context);
    };
    const given = add("eth0");
    add("eth1");
    const other = link.get(container.route, "eth1").mac!;
    const before = allowed(namespaces);
    // What fails is taken back.
    const failing = plugin({
      ...tuning,
      add(call) {
        tuning.add(call);
        throw new Error("too late");
      },
    });
    expect(() => tune(given, failing)).toThrow("too late");
    expect(allowed(namespaces).sort()).toEqual(before.sort());
    const prevResult = tune(given);
    expect(allowed(namespaces).sort()).toEqual([other, mac].sort());
    const request = (command: "ADD" | "CHECK") =>
      newRequest("bridge", command, { ...config, prevResult }, { netns: container });
    invokePlugin(bridge, request("CHECK"), context);
    expect(restorePlugin(bridge, request("ADD"), context)).toEqual([]);
    // An address that somebody else allowed in its place is not allowed besides.
    const rules = runInNetns(host, "nft", "list", "ruleset");
    const [, port] = rules.match(/"(veth\w+)" \. 0a:00:00:00:00:07/)!;
    const element = (address: string) => `{ "${port}" . ${address} comment "net c1 eth0" }`;
    runInNetns(host, "nft", "delete", "element", "bridge", "cni", "allowed", `{ "${port}" . ${mac} }`);
    runInNetns(host, "nft", "add", "element", "bridge", "cni", "allowed", element(FORGED));
    expect(restorePlugin(bridge, request("ADD"), context)).toEqual([`the hardware address of "${port}"`]);
    expect(allowed(namespaces).sort()).toEqual([other, mac].sort());
  },
);
