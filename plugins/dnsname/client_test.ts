import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { currentNetns } from "../../ffi/netns/netns.ts";
import { REPOSITORY_ROOT } from "../../scripts/src/repository.ts";
import { newNameSite } from "../../testing/dnsname.ts";
import { until } from "../../testing/netns.ts";
import { askNameServer, type NameServerPlace } from "./client.ts";

/** Answers after it has hung up so many times, as servers do that end. */
async function startServer(socket: string, hangUps: number): Promise<void> {
  const script = `
    const { acceptConnection, listenAt, receivePacket, sendPacket } = await import("${REPOSITORY_ROOT}/ffi/sys/unix_socket.ts");
    const listener = listenAt("${socket}");
    for (let hangUps = ${hangUps};; hangUps--) {
      const connection = acceptConnection(listener.fd);
      receivePacket(connection.fd, new Uint8Array(4096));
      if (hangUps <= 0) sendPacket(connection.fd, new TextEncoder().encode('{"version":1,"problems":[]}'));
      connection[Symbol.dispose]();
    }`;
  Bun.spawn(["setpriv", "--pdeathsig", "KILL", process.execPath, "-e", script], { stdin: "ignore" });
  await until(() => existsSync(socket));
}

test("the server after one that ends gets the question, and no third one", async () => {
  using site = newNameSite();
  using host = currentNetns();
  const [first, second] = [1, 2].map((hangUps) => ({
    daemonSocketPath: join(site.directory, `${hangUps}.sock`),
    dataDir: site.paths.state,
  })) as [NameServerPlace, NameServerPlace];
  await startServer(first.daemonSocketPath, 1);
  await startServer(second.daemonSocketPath, 2);
  expect(askNameServer(host, first, { command: "look" })).toEqual({ version: 1, problems: [] });
  expect(() => askNameServer(host, second, { command: "look" })).toThrow("gives no answer: it hung up");
});
