import type { PolicySite } from "./policy_site.ts";

/**
 * Answers in the place of `cni serve`, from another process: plugins wait.
 *
 * @param text `""`: it never answers
 * @param deleteFlowsMs how long it takes to delete flows
 * @returns what was asked
 */
export async function answerPlugins(
  site: Pick<PolicySite, "directory">,
  resources: DisposableStack,
  text: string,
  deleteFlowsMs = 0,
): Promise<() => unknown[]> {
  const program = `
    Bun.listen({
      unix: ${JSON.stringify(`${site.directory}/socket`)},
      socket: {
        data(socket, bytes) {
          const line = bytes.toString().trim();
          console.log(line);
          const answer = () => ${text === "" ? "{}" : `socket.end(${JSON.stringify(text)})`};
          if (line.includes("delete-flows")) setTimeout(answer, ${deleteFlowsMs});
          else answer();
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
