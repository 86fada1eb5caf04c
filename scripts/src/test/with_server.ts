/**
 * Runs a command, `bun test …`, with a server that takes its calls of the compiled binary: `with_server.ts REPORTS COMMAND…`. The directory
 * REPORTS gets the last status of this server, and of those that the tests start on nodes.
 *
 * @module
 */
import { reportServer, startServer } from "../../../testing/server.ts";

const [reports = "", ...command] = process.argv.slice(2);
process.env["CNI_SERVER_REPORTS"] = reports;
const server = await startServer();
const env = { ...process.env, ...server.env, CNI_SHIM_DIRECTORY: server.bin };
const status = await Bun.spawn(command, { env, stdio: ["ignore", "inherit", "inherit"] }).exited;
reportServer(server.status());
if (status !== 0) process.stdout.write(server.log());
server[Symbol.dispose]();
// A call that a failed test left behind would keep the server.
process.exit(status);
