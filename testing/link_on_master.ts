/**
 * What holds for each plugin that makes a link of the container on a master of the host: macvlan, ipvlan, vlan.
 *
 * @module
 */
import { expect } from "bun:test";
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { ipamGiving, type LanSandbox, lanTest, statusCode } from "./lan.ts";
import { askUntilAnswered, ipShow, linkNames, runShellInNetns } from "./netns.ts";
import { withPrevResult } from "./sandbox.ts";

/** What the plugins do differently. */
export interface LinkOnMaster {
  /** Keys of the configuration beside `master`. */
  readonly keys?: object;
  /** Puts the machine outside where the container will be. @returns its link there */
  joinOutside?(segment: LanSandbox): string;
}

/** Tests of the plugin in its own file, one for each behaviour. */
export function testLinkOnMaster(
  plugin: AnyPlugin,
  { keys = {}, joinOutside = () => "eth0" }: LinkOnMaster = {},
): void {
  const onMaster = { master: "up0", ...keys };
  const config = { ...onMaster, ...ipamGiving("10.5.0.2/24") };

  lanTest("linkInContainer takes a master of the container", ({ call, container, host }) => {
    runShellInNetns(container, "ip link add up1 up type veth peer name far; ip link set far up");
    const inContainer = { ...config, master: "up1", linkInContainer: true };
    const result = call(plugin, "ADD", inContainer);
    expect(ipShow(container, "link", "show", "eth0")[0].link).toBe("up1");
    call(plugin, "CHECK", withPrevResult(inContainer, result));
    expect(() => call(plugin, "CHECK", withPrevResult(config, result))).toThrow(
      'master of "eth0" is elsewhere, expected "up0"',
    );
    call(plugin, "DEL", inContainer);
    expect(linkNames(container)).toEqual(["far", "lo", "up1"]);
    expect(linkNames(host)).toEqual(["lo", "up0"]);
    expect(() => call(plugin, "ADD", { ...inContainer, master: "up0" })).toThrow(
      'master must be an interface of the container: got "up0"',
    );
  });

  lanTest(
    "DEL needs neither master nor namespace nor a valid configuration, and leaves what is not its own",
    (segment) => {
      const { call, container, host, ipamCalls } = segment;
      call(plugin, "ADD", config);
      call(plugin, "DEL", { ...config, mode: "nosuch", vlanId: 9999, mtu: -5, master: 5 });
      expect(linkNames(container)).toEqual(["lo"]);
      runShellInNetns(host, "ip link del up0");
      const inContainer = { ...config, linkInContainer: true };
      call(plugin, "DEL", config);
      call(plugin, "DEL", { ...keys, ...ipamGiving("10.5.0.2/24") });
      call(plugin, "DEL", config, { netns: null });
      call(plugin, "DEL", inContainer, { netns: null });
      call(plugin, "DEL", inContainer, { netns: "/run/netns/gone" });
      expect(ipamCalls).toEqual(["ADD", "DEL", "DEL", "DEL", "DEL", "DEL", "DEL"]);
      runShellInNetns(container, "ip link add eth0 type veth peer name far");
      call(plugin, "DEL", config);
      expect(linkNames(container)).toEqual(["eth0", "far", "lo"]);
    },
  );

  lanTest("an ADD that fails leaves nothing", ({ call, container, ipamCalls }) => {
    expect(() => call(plugin, "ADD", { ...onMaster, ...ipamGiving() })).toThrow("returned no address");
    expect(() => call(plugin, "ADD", { ...onMaster, cniVersion: "0.2.0" })).toThrow();
    const routes = [{ dst: "10.99.0.0/16", gw: "192.0.2.1" }];
    expect(() => call(plugin, "ADD", { ...onMaster, ipam: { type: "fixed", ips: ["10.5.0.2/24"], routes } })).toThrow(
      "10.99.0.0/16",
    );
    expect(() => call(plugin, "ADD", { ...onMaster, ipam: { type: "absent" } })).toThrow("absent");
    // The kernel would name it eth0.
    expect(() => call(plugin, "ADD", config, { ifname: "eth%d" })).toThrow('CNI_IFNAME "eth%d" has a %');
    expect(linkNames(container)).toEqual(["lo"]);
    expect(ipamCalls).toEqual(["ADD", "DEL", "ADD", "DEL"]);
    runShellInNetns(container, "ip link add eth0 type veth peer name far");
    expect(() => call(plugin, "ADD", config)).toThrow("the container has an interface of that name");
    expect(linkNames(container)).toEqual(["eth0", "far", "lo"]);
  });

  lanTest("an address that another machine has is refused with its MAC address, on IPv4 and IPv6", (segment) => {
    const { call, container, outside, ipamCalls } = segment;
    const mac = ipShow(outside, "link", "show", joinOutside(segment))[0].address;
    askUntilAnswered(container);
    expect(() => call(plugin, "ADD", { ...onMaster, ...ipamGiving("10.5.0.9/24", "10.5.0.1/24") })).toThrow(
      `Cannot use address 10.5.0.1 on "eth0" of master "up0": in use by another host on the network, MAC address ${mac}`,
    );
    expect(() => call(plugin, "ADD", { ...onMaster, ...ipamGiving("fd05::1/64") })).toThrow(
      'Cannot use address fd05::1/64 on "eth0" of master "up0": in use by another host on the network',
    );
    expect(linkNames(container)).toEqual(["lo"]);
    expect(ipamCalls).toEqual(["ADD", "DEL", "ADD", "DEL"]);
  });

  lanTest("machines outside learn at once that an address has moved", (segment) => {
    const { call, container, outside } = segment;
    const link = joinOutside(segment);
    runShellInNetns(outside, `ip neigh add 10.5.0.2 lladdr 0a:00:00:00:00:99 dev ${link} nud stale`);
    const { interfaces } = call(plugin, "ADD", config);
    expect(ipShow(outside, "neigh", "show", "10.5.0.2")[0].lladdr).toBe(interfaces![0]!.mac);
    expect(linkNames(container)).toEqual(["eth0", "lo"]);
  });

  lanTest("STATUS tells whether there is a master", (segment) => {
    const codeOf = (change: object) => statusCode(segment, plugin, { ...onMaster, ...change });
    expect(codeOf({})).toBe(0);
    expect(codeOf({ master: "nosuch" })).toBe(50);
    expect(codeOf({ master: "nosuch", linkInContainer: true })).toBe(0);
  });
}
