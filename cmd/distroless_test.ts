/** The binary in a root that holds nothing else, as a distroless image does. */
import { expect } from "bun:test";
import { readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../ffi/netns.ts";
import { inNetns, newNamespaces } from "../ffi/testing.ts";
import { testWith } from "./testing.ts";
import { newThinRoot, THIN_ROOT_PROGRAMS } from "./testing_thin_root.ts";

const NETWORK = {
  cniVersion: "1.1.0",
  name: "thin",
  plugins: [
    {
      type: "bridge",
      bridge: "thin0",
      isDefaultGateway: true,
      ipMasq: true,
      ipam: { type: "host-local", ranges: [[{ subnet: "10.77.0.0/24" }], [{ subnet: "fd00:77::/64" }]] },
    },
    { type: "portmap", capabilities: { portMappings: true } },
  ],
};
const MAPPING = JSON.stringify({ portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }] });

/** What of the attachment can be seen from outside. */
function seen(host: Netns) {
  return {
    ports: JSON.parse(inNetns(host, "ip", "-j", "link", "show", "type", "veth") || "[]").length as number,
    rules: inNetns(host, "nft", "list", "ruleset"),
  };
}

testWith(["nft", "ip", ...THIN_ROOT_PROGRAMS], "ADD, CHECK and DEL of the chain work in an empty root", () => {
  using thin = newThinRoot();
  using namespaces = newNamespaces();
  const { root } = thin;
  const { host, container } = namespaces;
  writeFileSync(join(root, "etc/cni/net.d/thin.conflist"), JSON.stringify(NETWORK));
  const run = (verb: string) => {
    const words = ["run", verb, "thin", container.path, "--container-id", "thin1"];
    const finished = thin.run(host, "cni", words, { env: { CAP_ARGS: MAPPING } });
    expect(finished).toMatchObject({ exitCode: 0, stderr: "" });
    return finished.stdout;
  };
  const result = JSON.parse(run("add"));
  expect(result.ips.map((ip: { address: string }) => ip.address)).toEqual(["10.77.0.2/24", "fd00:77::2/64"]);
  expect(seen(host).ports).toBe(1);
  expect(seen(host).rules).toContain("8080");
  expect(seen(host).rules).toContain("thin thin1 eth0");
  expect(JSON.parse(inNetns(container, "ip", "-j", "addr", "show", "eth0"))[0].operstate).toBe("UP");
  run("check");
  run("del");
  expect(seen(host).ports).toBe(0);
  expect(seen(host).rules).not.toContain("thin1");
  expect(readdirSync(join(root, "var/lib/cni/networks/thin")).filter((name) => name.includes("10.77"))).toEqual([]);
});
