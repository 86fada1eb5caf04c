/** The binary in a root that holds nothing else, as a distroless image does. */
import { expect } from "bun:test";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns.ts";
import { inNetns, newNamespaces } from "../ffi/testing.ts";
import { layOut } from "../scripts/image.ts";
import { CNI, testWith } from "./testing.ts";

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

/** A root with the binary and a network, for as long as its scope. */
function newRoot(): { readonly root: string } & Disposable {
  const root = mkdtempSync(join(tmpdir(), "cni-root-"));
  layOut(root, CNI);
  mkdirSync(join(root, "etc/cni/net.d"), { recursive: true });
  writeFileSync(join(root, "etc/cni/net.d/thin.conflist"), JSON.stringify(NETWORK));
  return { root, [Symbol.dispose]: () => rmSync(root, { recursive: true, force: true }) };
}

/** Runs the binary inside the root, and nothing besides: `unshare` and `chroot` end by becoming it. */
function runInside(host: Netns, root: string, env: Record<string, string>, ...args: string[]) {
  const script = 'mount -t proc proc "$1/proc" && root=$1 && shift && exec chroot "$root" "$@"';
  const command = ["unshare", "--mount", "sh", "-c", script, "sh", root, "/opt/cni/bin/cni", ...args];
  // The program's own environment is what env(1) leaves: PATH leads nowhere.
  const thin = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", ...env };
  const child = host.run(() => Bun.spawnSync(command, { env: thin, stdin: "ignore" }));
  return { exitCode: child.exitCode, stdout: child.stdout.toString(), stderr: child.stderr.toString() };
}

/** What of the attachment can be seen from outside. */
function seen(host: Netns) {
  return {
    ports: JSON.parse(inNetns(host, "ip", "-j", "link", "show", "type", "veth") || "[]").length as number,
    rules: inNetns(host, "nft", "list", "ruleset"),
  };
}

testWith(["nft", "ip"], "ADD, CHECK and DEL of the chain work in an empty root", () => {
  using prepared = newRoot();
  using namespaces = newNamespaces();
  const { root } = prepared;
  const { host, container } = namespaces;
  const run = (verb: string) => {
    const finished = runInside(
      host,
      root,
      { CAP_ARGS: MAPPING },
      "run",
      verb,
      "thin",
      container.path,
      "--container-id",
      "thin1",
    );
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
