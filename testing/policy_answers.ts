import type { PolicySite } from "./policy_site.ts";

/**
 * Answers in the place of `cni serve`, from another process: plugins wait.
 *
 * @param text `""`: it never answers
 * @returns what was asked
 */
export async function answerPlugins(
  site: PolicySite,
  resources: DisposableStack,
  text: string,
): Promise<() => unknown[]> {
  const program = `
    Bun.listen({
      unix: ${JSON.stringify(`${site.directory}/socket`)},
      socket: {
        data(socket, bytes) {
          console.log(bytes.toString().trim());
          ${text === "" ? "" : `socket.end(${JSON.stringify(text)});`}
        },
      },
    });
    console.log("{}");`;
  const server = Bun.spawn([process.execPath, "-e", program], { stdout: "pipe", stderr: "inherit" });
  resources.defer(() => server.kill(9));
  let asked = "";
  const { promise, resolve } = Promise.withResolvers<void>();
  (async () => {
    for await (const chunk of server.stdout) {
      asked += new TextDecoder().decode(chunk);
      resolve();
    }
  })();
  await promise;
  return () => asked.trim().split("\n").slice(1).map((line) => JSON.parse(line));
}
