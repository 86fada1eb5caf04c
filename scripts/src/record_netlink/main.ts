/** `scripts/record_netlink NAME COMMAND…` writes the command's last netlink message to testdata/netlink/NAME.hex, its sequence number 0. @module */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runProcess } from "../harness/process.ts";
import { parseTrace } from "../harness/trace.ts";
import { newScratchDirectory, REPOSITORY_ROOT } from "../repository.ts";

const [name, ...command] = process.argv.slice(2);
if (!name || command.length === 0) throw new Error("usage: scripts/record_netlink NAME COMMAND…");

using directory = newScratchDirectory();
const file = join(directory.path, "trace");
const strace = ["strace", "-f", "-o", file, "-e", "trace=sendmsg", "-e", "verbose=none", "-e", "write=all"];
// Whether the kernel accepted the message does not matter: what it lacks, another has.
const { stderr } = runProcess({ argv: ["unshare", "-n", ...strace, "--", ...command] });
const message = parseTrace(readFileSync(file, "utf8")).findLast(({ data }) => data.length > 0)?.data;
if (!message) throw new Error(`${command.join(" ")} sent nothing: ${stderr}`);
message.fill(0, 8, 12);

const rows = message.toHex().match(/.{1,32}/g)!.map((row) => row.match(/../g)!.join(" "));
const text = `# ${command.join(" ")}\n${rows.join("\n")}\n`;
writeFileSync(join(REPOSITORY_ROOT, `testdata/netlink/${name}.hex`), text);
