/**
 * The programs that the demonstration runs in its namespaces: `serve NAME PORT` answers HTTP requests with its name and the
 * address of the client, `get URL` prints an answer.
 */
const [role, ...args] = process.argv.slice(2);

if (role === "serve") {
  const [name, port] = args;
  Bun.serve({
    hostname: "::",
    port: Number(port),
    fetch(request, server): Response {
      const from = server.requestIP(request)?.address.replace(/^::ffff:/, "");
      return new Response(`${name}, from ${from}`);
    },
  });
  console.log("ready");
} else if (role === "get") {
  const answer = await fetch(args[0], { signal: AbortSignal.timeout(3000) });
  console.log(await answer.text());
} else {
  throw new Error("usage: peer.ts serve NAME PORT | get URL");
}
