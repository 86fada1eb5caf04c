import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { newHostLocalNetwork } from "../../testing/host_local.ts";

const IPAM = { ranges: [[{ subnet: "10.0.0.0/29" }]] };
const GC = { config: { "cni.dev/valid-attachments": [] } };

for (const [what, exists] of [["somewhere else", true], ["nowhere", false]] as const) {
  test(`a link to ${what} in the place of a network's directory is not followed`, () => {
    using net = newHostLocalNetwork(IPAM);
    const target = join(net.dataDir, "target");
    const files: Record<string, string> = exists ? { "10.0.0.2": "", "10.0.0.3": "c1\r\neth0" } : {};
    if (exists) mkdirSync(target);
    for (const [name, text] of Object.entries(files)) writeFileSync(join(target, name), text);
    symlinkSync(target, net.directory);
    const refusal =
      `Cannot write to directory "${net.directory}": Not a directory (ENOTDIR, it is a symbolic link, which ` +
      "is not followed: remove it, or put what it leads to in its place)";
    expect(() => net.add("c1")).toThrow(refusal);
    expect(() => net.call("STATUS")).toThrow(
      expect.objectContaining({ code: 50, message: `Cannot reserve addresses: ${refusal}` }),
    );
    expect(() => net.call("CHECK")).toThrow(`holds no address in "${net.directory}"`);
    expect(net.log).toEqual([]);
    net.call("DEL");
    net.call("GC", GC);
    const said = `host-local: "${net.directory}" is a symbolic link, which is not followed; continuing without it`;
    expect(net.log).toEqual([said, said]);
    expect(readdirSync(net.dataDir).sort()).toEqual(exists ? ["net", "target"] : ["net"]);
    if (exists) expect(net.files()).toEqual(files);
    rmSync(net.directory);
    expect(net.add("c1")).toBe("10.0.0.2");
  });
}

test("the directory above may be a link, as of one who has moved the state of the node", () => {
  using net = newHostLocalNetwork(IPAM);
  const moved = join(net.dataDir, "moved");
  mkdirSync(moved);
  symlinkSync(moved, join(net.dataDir, "link"));
  const ipam = { dataDir: join(net.dataDir, "link") };
  expect(net.add("c1", { ipam })).toBe("10.0.0.2");
  net.call("CHECK", { ipam });
  net.call("STATUS", { ipam });
  expect(readFileSync(join(moved, "net/10.0.0.2"), "utf8")).toBe("c1\r\neth0");
  net.call("DEL", { ipam });
  expect(readdirSync(join(moved, "net")).sort()).toEqual(["last_reserved_ip.0", "lock"]);
});

const HINT = "last_reserved_ip.0";
for (const name of [HINT, `.${HINT}.${Bun.hash.wyhash(HINT).toString(36)}.tmp`]) {
  test(`a directory called ${name} is in the way of no ADD, as it is only a hint that cannot be written`, () => {
    using net = newHostLocalNetwork(IPAM);
    net.add("c1");
    const names = net.names();
    rmSync(join(net.directory, HINT));
    mkdirSync(join(net.directory, name));
    expect(net.add("c2")).toBe("10.0.0.3");
    const hint = join(net.directory, HINT);
    const said = `Cannot write "${hint}": Is a directory (EISDIR, remove the directory); continuing without it`;
    expect(net.log).toEqual([`host-local: ${said}`]);
    expect(net.names()).toEqual(
      [...new Set([...names.filter((each) => each !== HINT), name, ".c2:eth0", "10.0.0.3"])].sort(),
    );
  });
}
