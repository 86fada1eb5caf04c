/** The binary in a root that holds nothing else, as a distroless image does. */
import { expect } from "bun:test";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { addDefaultRoute, newNamespaces, runInNetns } from "../testing/netns.ts";
import { testWith } from "../testing/binary.ts";
import {
  MINIMAL_ROOT_ADDRESSES,
  MINIMAL_ROOT_CAP_ARGS,
  MINIMAL_ROOT_PROGRAMS,
  newMinimalRoot,
} from "../testing/minimal_root.ts";

/** What of the attachment can be seen from outside. */
function seen(host: Netns) {
  return {
    ports: JSON.parse(runInNetns(host, "ip", "-j", "link", "show", "type", "veth") || "[]").length as number,
    rules: runInNetns(host, "nft", "list", "ruleset"),
  };
}

testWith(["nft", "ip", ...MINIMAL_ROOT_PROGRAMS], "ADD, CHECK and DEL of the chain work in an empty root", () => {
  using thin = newMinimalRoot();
  using namespaces = newNamespaces();
  addDefaultRoute(namespaces.host);
  const { root } = thin;
  const { host, container } = namespaces;
  const run = (verb: string) => {
    const words = ["run", verb, "thin", container.path, "--container-id", "thin1"];
    const finished = thin.run(host, "cni", words, { env: { CAP_ARGS: MINIMAL_ROOT_CAP_ARGS } });
    expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
    return finished.stdout;
  };
  const result = JSON.parse(run("add"));
  expect(result.ips.map((ip: { address: string }) => ip.address)).toEqual(MINIMAL_ROOT_ADDRESSES);
  expect(seen(host).ports).toBe(1);
  expect(seen(host).rules).toContain("8080");
  expect(seen(host).rules).toContain("thin thin1 eth0");
  expect(JSON.parse(runInNetns(container, "ip", "-j", "addr", "show", "eth0"))[0].operstate).toBe("UP");
  run("check");
  run("del");
  expect(seen(host).ports).toBe(0);
  expect(seen(host).rules).not.toContain("thin1");
  expect(readdirSync(join(root, "var/lib/cni/networks/thin")).filter((name) => name.includes("10.77"))).toEqual([]);
});
