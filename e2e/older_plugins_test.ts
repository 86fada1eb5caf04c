/** Programs of others in the plugin directory that are older than the version of a network. */
import { expect } from "bun:test";
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { testWith } from "../testing/binary.ts";
import { newTestNode, NODE_PROGRAMS, type TestNode } from "../testing/node.ts";

/** Refuses as the reference does, and does nothing. */
const OLD = `#!/bin/sh
cat >/dev/null
[ $CNI_COMMAND != VERSION ] || { echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}'; exit 0; }
echo '{"cniVersion":"1.0.0","code":1,"msg":"incompatible CNI versions"}'
exit 1
`;

/** A node with a container "web", where some plugins are old programs. */
async function nodeWithOld(...names: string[]): Promise<TestNode> {
  const node = await newTestNode();
  for (const name of names) {
    rmSync(join(node.bin, name));
    writeFileSync(join(node.bin, name), OLD, { mode: 0o755 });
  }
  node.run("/opt/cni/bin/cni", "netns", "add", "web");
  return node;
}

const left = ({ state }: TestNode) => readdirSync(join(state, "results")).filter((name) => !name.startsWith("."));

testWith(NODE_PROGRAMS, "the built-in network needs no program of others, and takes none", async () => {
  using node = await nodeWithOld("bridge", "host-local", "portmap");
  const cni = (...words: string[]) => node.run("/opt/cni/bin/cni", "run", ...words);
  expect(JSON.parse(cni("add", "default", "web", "-p", "8080:80")).ips[0].address).toBe("10.63.0.2/16");
  expect(cni("check", "default", "web") + cni("status", "default")).toBe("");
  node.run("nft", "delete", "table", "inet", "cni");
  expect(JSON.parse(cni("restore", "default")).attachments).toMatchObject([{ state: "restored" }]);
  cni("del", "default", "web");
  expect(left(node)).toEqual([]);
  cni("add", "default", "web");
  cni("gc", "default", "--all");
  expect(left(node)).toEqual([]);
  expect(readdirSync(join(node.state, "networks/default")).filter((name) => name.startsWith("10."))).toEqual([]);
});

for (const old of ["bridge", "host-local", "portmap"]) {
  testWith(
    NODE_PROGRAMS,
    `an ADD that an old ${old} refuses leaves nothing, and says which program that was`,
    async () => {
      using node = await nodeWithOld(old);
      const list = {
        ...{ cniVersion: "1.1.0", name: "v" },
        plugins: [
          { type: "bridge", ipMasq: true, ipam: { type: "host-local", ranges: [[{ subnet: "10.5.0.0/24" }]] } },
          { type: "portmap", capabilities: { portMappings: true } },
        ],
      };
      writeFileSync(join(node.networks, "v.conflist"), JSON.stringify(list));
      let said = "";
      try {
        node.run("/opt/cni/bin/cni", "run", "add", "v", "web", "-p", "8080:80");
      } catch (error) {
        // Long details have a line for each part.
        said = String(error).replaceAll("\n     ", "; ");
      }
      expect(said).toContain(
        `: incompatible CNI versions; its program is "/opt/cni/bin/${old}", used instead of the built-in plugin` +
          "; remove it; or replace every plugin in the directory: cni install --force /opt/cni/bin\n",
      );
      expect(left(node)).toEqual([]);
      expect(node.run("ip", "-o", "link")).not.toContain("veth");
    },
  );
}

/** Speaks the version, makes an interface, and fails by what it calls in turn; then as long as that is not mended. */
const HALFWAY = `#!/bin/sh
cat >/dev/null
[ $CNI_COMMAND != VERSION ] || { echo '{"cniVersion":"1.0.0","supportedVersions":["1.0.0","1.1.0"]}'; exit 0; }
link() { nsenter --net=$CNI_NETNS ip link "$@"; }
[ $CNI_COMMAND != ADD ] || link add $CNI_IFNAME type bridge
[ ! -e /opt/cni/bin/mended ] || { link del $CNI_IFNAME; exit 0; }
echo '{"cniVersion":"1.0.0","code":1,"msg":"incompatible CNI versions"}'
exit 1
`;

testWith(
  NODE_PROGRAMS,
  "an ADD that fails with code 1 halfway, and cannot be undone, is remembered until it can; its program is not blamed",
  async () => {
    using node = await nodeWithOld();
    const program = join(node.bin, "bridge");
    rmSync(program);
    writeFileSync(program, HALFWAY, { mode: 0o755 });
    writeFileSync(
      join(node.networks, "h.conflist"),
      '{"cniVersion":"1.1.0","name":"h","plugins":[{"type":"bridge","ipam":{"type":"old"}}]}',
    );
    const cni = (...words: string[]) => node.run("/opt/cni/bin/cni", "run", ...words);
    let said = "";
    try {
      cni("add", "h", "web");
    } catch (error) {
      said = String(error);
    }
    expect(said).toContain("clean-up failed");
    expect(said).not.toContain("cni install");
    expect(cni("list", "h")).toContain("web");
    writeFileSync(join(node.bin, "mended"), "");
    cni("gc", "h", "--all");
    expect(left(node)).toEqual([]);
    expect(node.run("ip", "-n", "web", "-o", "link")).not.toContain("eth0");
  },
);
