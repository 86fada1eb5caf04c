/**
 * The programs that the demonstration runs in its namespaces: `serve NAME PORT` answers HTTP requests with its name and the address it was
 * asked from, `ask URL` prints an answer.
 */
const [role, ...args] = process.argv.slice(2);

if (role === "serve") {
  const [name, port] = args;
  Bun.serve({
    hostname: "::",
    port: Number(port),
    fetch(request, server): Response {
      const from = server.requestIP(request)?.address.replace(/^::ffff:/, "");
      return new Response(`${name}, asked from ${from}`);
    },
  });
  console.log("ready");
} else if (role === "ask") {
  const answer = await fetch(args[0], { signal: AbortSignal.timeout(3000) });
  console.log(await answer.text());
} else {
  throw new Error("usage: demo_peer.ts serve NAME PORT | ask URL");
}
