/** Reservations where inode numbers are not unique: on an overlay of two file systems. */
import { expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { useDirectory } from "../../testing/directory.ts";

const root = useDirectory("cni-test-");

/** In a mount namespace of its own. $1 runs $2 on the lower layer, and then $3 on the overlay. */
const OVERLAY = `
  cd "$0"
  mount -t tmpfs lower lower
  mount -t tmpfs upper upper
  mkdir upper/files upper/work
  "$1" -e "$2"
  mount -t overlay overlay -o lowerdir=lower,upperdir=upper/files,workdir=upper/work merged
  exec "$1" -e "$3"`;

/** A program in which `net` is a network of 59 addresses, and `forget` has it go by the directory alone. */
const program = (directory: string, body: string) => `
  import { rmSync } from "node:fs";
  import { newHostLocalNetwork } from ${JSON.stringify(join(import.meta.dir, "../../testing/host_local.ts"))};
  const dataDir = ${JSON.stringify(join(root, directory))};
  const net = newHostLocalNetwork({ subnet: "10.0.0.0/26", rangeStart: "10.0.0.2", rangeEnd: "10.0.0.60" }, dataDir);
  const forget = () => rmSync(dataDir + "/.net.index", { force: true });
  ${body}`;

const ADD_LOWER = program("lower", `for (let i = 0; i < 30; i++) net.add("lower" + i); forget();`);

/** Prints the addresses that were given twice, those that a DEL did not give back, what the plugin said, and the names that are left. */
const REPLACE_LOWER = program(
  "merged",
  `const held = new Map();
  const twice = [], kept = [];
  const add = (id) => {
    const address = net.add(id);
    if (held.has(address)) twice.push(address);
    held.set(address, id);
  };
  for (let i = 0; i < 29; i++) add("upper" + i);
  forget();
  for (let i = 0; i < 30; i++) net.call("DEL", { id: "lower" + i });
  forget();
  for (let i = 0; i < 30; i++) add("new" + i);
  forget();
  const valid = [...held.values()].map((containerID) => ({ containerID, ifname: "eth0" }));
  net.call("GC", { config: { "cni.dev/valid-attachments": valid } });
  for (const [address, id] of held) {
    if (net.files()[address] !== id + "\\r\\neth0") kept.push("no " + address);
    forget();
    net.call("DEL", { id });
    if (address in net.files()) kept.push(address);
  }
  console.log(JSON.stringify([twice, kept, net.log, net.names()]));`,
);

test("no address is given twice on an overlay of two file systems", () => {
  for (const name of ["lower", "upper", "merged"]) mkdirSync(join(root, name));
  const command = ["unshare", "-m", "sh", "-ec", OVERLAY, root, process.execPath, ADD_LOWER, REPLACE_LOWER];
  const { exitCode, stdout, stderr } = Bun.spawnSync(command, { stdin: "ignore" });
  expect([exitCode, stderr.toString()]).toEqual([0, ""]);
  expect(JSON.parse(stdout.toString())).toEqual([[], [], [], ["last_reserved_ip.0", "lock"]]);
});
