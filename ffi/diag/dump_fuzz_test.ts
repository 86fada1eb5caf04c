/** What sock_diag reports of sockets, damaged in every way: a value or one of our errors. */
import { expect, test } from "bun:test";
import { IPPROTO_TCP, IPPROTO_UDP } from "../sys/uapi.ts";
import { newNamespaces } from "../../testing/netns.ts";
import { checkDamagedAnswers } from "../../testing/fuzz.ts";
import { serveTcp, serveUdp } from "../../testing/traffic.ts";
import { listListeners } from "./listeners.ts";

test("sockets of a damaged answer give a value or an error of ours", async () => {
  using resources = new DisposableStack();
  const { host } = resources.use(newNamespaces());
  resources.use(serveTcp(host, "tcp", 8080, "0.0.0.0"));
  resources.use(serveTcp(host, "tcp", 8081));
  resources.use(await serveUdp(host, "udp", 8080, "0.0.0.0"));
  resources.use(await serveUdp(host, "udp", 8081));
  for (const protocol of [IPPROTO_TCP, IPPROTO_UDP]) {
    const found = checkDamagedAnswers(host.diag, (nl) => listListeners(nl, protocol, 1, 65535), 500);
    expect(found).toHaveLength(2);
  }
});
