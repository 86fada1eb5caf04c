/** Programs of others in the plugin directory that are older than the version of a network. */
import { expect } from "bun:test";
import { readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { testWith } from "./testing.ts";
import { newNode, NODE_PROGRAMS, type TestNode } from "./testing_node.ts";

/** Refuses as the reference does, and does nothing. */
const OLD = `#!/bin/sh
cat >/dev/null
echo '{"cniVersion":"1.0.0","code":1,"msg":"incompatible CNI versions"}'
exit 1
`;

/** A node with a container "web", where some plugins are old programs. */
async function nodeWithOld(...names: string[]): Promise<TestNode> {
  const node = await newNode();
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
        said = String(error);
      }
      expect(said).toContain(
        `: incompatible CNI versions\n     its program is "/opt/cni/bin/${old}", which is called instead of the plugin ` +
          "that is built in; remove it, or replace it: cni install --force /opt/cni/bin\n",
      );
      expect(left(node)).toEqual([]);
      expect(node.run("ip", "-o", "link")).not.toContain("veth");
    },
  );
}
