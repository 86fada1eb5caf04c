/** Plugins that change what earlier ones of the list made: every CHECK must accept the whole, and DEL must leave nothing. */
import { expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { ping, runInNetns } from "../testing/netns.ts";
import { type ConformanceNode, newConformanceNode } from "../testing/conformance.ts";

const ranges = (n: number) => [[{ subnet: `10.5.${n}.0/24` }], [{ subnet: `fd05:${n}::/64` }]];
const routes = [{ dst: "0.0.0.0/0" }, { dst: "::/0" }];

/** A network on a bridge of its own, with what is behind `bridge` in the list. */
function list(node: ConformanceNode, n: number, ...behind: object[]): string {
  const ipam = {
    type: "host-local",
    dataDir: join(node.directory, "ipam"),
    ranges: ranges(n),
    routes: n === 1 ? routes : [],
  };
  const plugins = [{ type: "bridge", bridge: `br${n}`, isGateway: true, ipam }, ...behind];
  return node.file({ cniVersion: "1.1.0", name: `net${n}`, plugins });
}

const tuned = (node: ConformanceNode, more: object) => ({
  type: "tuning",
  dataDir: join(node.directory, "tuning"),
  ...more,
});

test("bridge with tuning twice: CHECK passes, DEL leaves no file", () => {
  using node = newConformanceNode();
  const sysctl = { "net.core.somaxconn": "500", "net.ipv4.conf.IFNAME.rp_filter": "2" };
  const first = tuned(node, { mtu: 1400, mac: "0a:00:00:00:00:07", sysctl });
  const file = list(node, 1, first, tuned(node, { mtu: 1300, promisc: true, sysctl: { "net.core.somaxconn": "600" } }));
  expect(node.run("add", file, node.container.path)).toMatchObject({ exitCode: 0, stderr: "" });
  const [{ mtu, address }] = JSON.parse(runInNetns(node.container, "ip", "-j", "link", "show", "eth0"));
  expect([mtu, address]).toEqual([1300, "0a:00:00:00:00:07"]);
  expect(node.run("check", file, node.container.path)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  expect(readdirSync(join(node.directory, "tuning"))).toHaveLength(1);
  expect(node.run("del", file, node.container.path)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  expect(readdirSync(join(node.directory, "tuning"))).toEqual([]);
});

test("a second network with sbr: each address answers by its own interface, CHECK of both passes, DEL leaves the first", () => {
  using node = newConformanceNode();
  const [one, two] = [list(node, 1), list(node, 2, { type: "sbr" })];
  const second = ["--ifname", "eth1"];
  expect(node.run("add", one, node.container.path)).toMatchObject({ exitCode: 0, stderr: "" });
  const before = runInNetns(node.container, "ip", "route", "show", "table", "all");
  expect(node.run("add", two, node.container.path, ...second)).toMatchObject({ exitCode: 0, stderr: "" });
  const way = (from: string) => runInNetns(node.container, "ip", "route", "get", "192.0.2.1", "from", from);
  expect(way("10.5.1.2")).toContain("via 10.5.1.1 dev eth0");
  expect(way("10.5.2.2")).toContain("via 10.5.2.1 dev eth1");
  expect(runInNetns(node.container, "ip", "-6", "route", "get", "2001:db8::1", "from", "fd05:2::2")).toContain(
    "dev eth1",
  );
  expect(node.run("check", one, node.container.path)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  expect(node.run("check", two, node.container.path, ...second)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  // What bridge gave and nobody moved is still missed.
  runInNetns(node.container, "ip", "route", "del", "default", "dev", "eth0");
  expect(node.run("check", one, node.container.path).exitCode).toBe(1);
  runInNetns(node.container, "ip", "route", "add", "default", "via", "10.5.1.1");
  expect(node.run("del", two, node.container.path, ...second)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  expect(runInNetns(node.container, "ip", "rule")).not.toContain("10.5.2.2");
  expect(runInNetns(node.container, "ip", "route", "show", "table", "all")).toBe(before);
});

test("sbr behind bridge with routes of its own: bridge finds them in the tables that they moved to", () => {
  using node = newConformanceNode();
  const file = list(node, 1, { type: "sbr" });
  expect(node.run("add", file, node.container.path)).toMatchObject({ exitCode: 0, stderr: "" });
  expect(runInNetns(node.container, "ip", "route", "show", "table", "main")).toBe("");
  expect(node.run("check", file, node.container.path)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  runInNetns(node.container, "ip", "route", "del", "default", "table", "100");
  expect(node.run("check", file, node.container.path).stderr).toContain("lacks the route to 0.0.0.0/0 via 10.5.1.1");
  expect(node.run("del", file, node.container.path)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  expect(existsSync(node.container.path)).toBe(true);
});

test("sbr behind bridge with gateways of its own: CHECK of both passes", () => {
  using node = newConformanceNode();
  const file = list(node, 1, { type: "sbr", gateways: ["10.5.1.9", "fd05:1::9"] });
  expect(node.run("add", file, node.container.path)).toMatchObject({ exitCode: 0, stderr: "" });
  expect(runInNetns(node.container, "ip", "route", "show", "table", "100")).toContain("default via 10.5.1.9 dev eth0");
  expect(node.run("check", file, node.container.path)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  runInNetns(node.container, "ip", "route", "replace", "default", "via", "10.5.1.1", "table", "100");
  expect(node.run("check", file, node.container.path).stderr).toContain("lacks the default route via 10.5.1.9");
  expect(node.run("del", file, node.container.path)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
});

test("static addresses: what the configuration says is what the container has", () => {
  using node = newConformanceNode();
  const addresses = [{ address: "10.5.1.77/24", gateway: "10.5.1.1" }, {
    address: "fd05:1::77/64",
    gateway: "fd05:1::1",
  }];
  const bridge = { type: "bridge", bridge: "br1", isGateway: true, ipam: { type: "static", addresses, routes } };
  const file = node.file({ cniVersion: "1.1.0", name: "net1", plugins: [bridge] });
  expect(node.run("add", file, node.container.path)).toMatchObject({ exitCode: 0, stderr: "" });
  ping(node.container, "10.5.1.1");
  ping(node.container, "fd05:1::1");
  expect(node.run("check", file, node.container.path)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  expect(node.run("del", file, node.container.path)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
});
