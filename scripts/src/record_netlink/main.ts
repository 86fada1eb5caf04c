/**
 * Records what another program sends to the kernel: `scripts/record_netlink NAME COMMAND…` writes testdata/netlink/NAME.hex.
 *
 * The command runs in a network namespace of its own; the last message it sends is kept. Sequence numbers differ from run to run, so they
 * are set to 0.
 */
const [name, ...command] = process.argv.slice(2);
if (!name || command.length === 0) throw new Error("usage: scripts/record_netlink NAME COMMAND…");

const traced = [
  "unshare",
  "-n",
  "strace",
  "-f",
  "-e",
  "trace=sendmsg",
  "-e",
  "verbose=none",
  "-e",
  "write=all",
  "--",
  ...command,
];
// Whether the kernel accepted the message does not matter: what it lacks, another has.
const { stderr } = Bun.spawnSync(traced);

/** strace prints ` | 00010  08 00 …  ascii |` for each sixteen bytes; before those of each part of a message, how many there are. */
let message: number[] = [];
for (const line of stderr.toString().split("\n")) {
  if (line.endsWith(" bytes in buffer 0")) message = [];
  const row = /^\s*\| ([0-9a-f]{5})\s+((?:[0-9a-f]{2}\s+){1,16})/.exec(line);
  if (!row) continue;
  message.push(...row[2].trim().split(/\s+/).map((byte) => parseInt(byte, 16)));
}
if (message.length === 0) throw new Error(`${command.join(" ")} sent nothing: ${stderr}`);
message.fill(0, 8, 12);

const rows: string[] = [];
for (let at = 0; at < message.length; at += 16) {
  rows.push(message.slice(at, at + 16).map((byte) => byte.toString(16).padStart(2, "0")).join(" "));
}
await Bun.write(
  new URL(`../../../testdata/netlink/${name}.hex`, import.meta.url),
  `# ${command.join(" ")}\n${rows.join("\n")}\n`,
);
