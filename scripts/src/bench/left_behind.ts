/** What an ADD costs that leaves a server behind, on a machine that `cni install` has just made ready. @module */
import { BRIDGE_CONFIG, bridgeCall } from "../../../testing/bridge_call.ts";
import { newMachineOfNamespaces } from "../../../testing/machine_of_namespaces.ts";
import { CNI_PROGRAM } from "../repository.ts";
import { interleave } from "./measure.ts";
import { type BenchRow, row } from "./table.ts";
import type { BenchWorkspace } from "./workspace.ts";

const BIN = "/run/bin";
const END_SERVER = `pkill -f '^${BIN}/cni-full serve' || :
  while pgrep -f '^${BIN}/cni-full serve' >/dev/null; do sleep 0.01; done; rm -f /run/cni/start`;

export async function leftBehindRows({ rounds }: BenchWorkspace): Promise<readonly BenchRow[]> {
  await using machine = await newMachineOfNamespaces();
  const run = (script: string): string => {
    const { exitCode, stdout, stderr } = machine.run(script);
    if (exitCode !== 0) throw new Error(`${script}: ${stderr}`);
    return stdout;
  };
  run(`${CNI_PROGRAM} install ${BIN}; ip netns add c1`);
  const add = (isAllowed: boolean) => () => {
    run(`echo '{"server": ${isAllowed}}' >/etc/cni/cni.json`);
    // A file has the whole output: no process of the call delays the next line.
    const script = `bash -c 'a=$EPOCHREALTIME; ${BIN}/bridge </run/config >/run/out; echo $a $EPOCHREALTIME'`;
    const [began, ended] = run(`echo '${BRIDGE_CONFIG}' >/run/config
      ${bridgeCall(BIN, "ADD", "c1", script)}`).split(" ").map(Number);
    run(`${END_SERVER}; echo '{"server": false}' >/etc/cni/cni.json; ${bridgeCall(BIN, "DEL", "c1")}`);
    return (ended! - began!) * 1000;
  };
  const samples = interleave(rounds, { starting: add(true), alone: add(false) });
  return [
    row("ADD of `bridge` that leaves a server behind", "more", samples["starting"]!, [
      "the same where none is allowed",
      samples["alone"]!,
    ], { atMost: 1 }),
  ];
}
