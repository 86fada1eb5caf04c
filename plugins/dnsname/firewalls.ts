/** Other firewalls of the host: open for the server's addresses as long as a record needs them. */
import type { Owner } from "../lib/model/owner.ts";
import { inDirectory, walkDirectory } from "../../ffi/sys/directory.ts";
import { lockFile } from "../../ffi/sys/lock.ts";
import { missingRulesOf } from "../lib/protocol/check_failed.ts";
import { type PluginCall, runAllSteps } from "../lib/protocol/plugin.ts";
import { findState, listStates } from "../lib/protocol/state_file.ts";
import { removeRulesIfSupported } from "../lib/ruleset/nf_tables_support.ts";
import type { DnsnameConfig } from "./config.ts";
import { addRichRules, listMissingRichRules, removeRichRules } from "./firewalld.ts";
import { addInputAccept, checkInputAccept, hasInputAccept, removeInputAccept } from "./input_accept.ts";
import { isOnHost, mayBelongTo, type NameRecord, type NameServer, parseRecord } from "./record.ts";

type HostCall = Pick<PluginCall<DnsnameConfig>, "config" | "env" | "host" | "log">;

const LOCK_TIMEOUT_MS = 10_000;

/** @returns what was missing, as text */
export function letQuestionsIn({ config, env, host }: HostCall, servers: readonly NameServer[]): string[] {
  let added: string[] = [];
  removeRulesIfSupported(host, false, (nl) => {
    using _ = lockRules(config.dataDir);
    added = addInputAccept(nl, servers);
  });
  return [...added, ...addRichRules(env, servers)];
}

/** Removes the rules of addresses that no record needs. A record that cannot be used may need any. */
export function keepQuestionsOut({ config, host, log }: HostCall): void {
  removeRulesIfSupported(host, false, (nl) => {
    if (!hasInputAccept(nl)) return;
    using _ = lockRules(config.dataDir, log);
    const problems: string[] = [];
    const states = listStates(config.dataDir, parseRecord, (problem) => void problems.push(problem));
    for (const problem of problems.sort()) log(keptRules(problem));
    if (problems.length > 0) return;
    const records = states.map(([, record]) => record);
    removeInputAccept(nl, records.filter((record) => isOnHost(record, host)).flatMap(({ servers }) => servers));
  });
}

const keptRules = (problem: string): string => `${problem}; rules that let questions in stay`;

/** Else the last DEL could take away what an ADD has just found there. */
function lockRules(dataDir: string, onDirectory?: (message: string) => void): Disposable {
  const options = { timeoutMs: LOCK_TIMEOUT_MS, ...onDirectory && { onDirectory } };
  return inDirectory(dataDir, 0o700, () => lockFile(`${dataDir}/rules.lock`, options));
}

/** As {@linkcode keepQuestionsOut} for one record that is gone: in most cases, the first file of its network tells. */
export function keepQuestionsOutAfter(call: HostCall, { owner, servers }: NameRecord): void {
  if (mayBeUsedByOthers(call, owner.network, servers)) return;
  runAllSteps(
    () => keepQuestionsOut(call),
    () => removeRichRules(call.env, servers),
  );
}

export function checkQuestionsComeIn({ env, host }: HostCall, servers: readonly NameServer[], owner: Owner): void {
  removeRulesIfSupported(host, false, (nl) => checkInputAccept(nl, servers, owner));
  const [missing] = listMissingRichRules(env, servers);
  if (missing !== undefined) throw missingRulesOf(owner, `there is no ${missing}`);
}

function mayBeUsedByOthers({ config, log }: HostCall, network: string, servers: readonly NameServer[]): boolean {
  const { dataDir } = config;
  const text = JSON.stringify(servers);
  const problems: string[] = [];
  const mayBeOfNetwork = mayBelongTo(network);
  for (const { name } of walkDirectory(dataDir)) {
    if (!mayBeOfNetwork(name)) continue;
    const record = findState(`${dataDir}/${name}`, parseRecord, (problem) => void problems.push(problem));
    if (record && JSON.stringify(record.servers) === text) return true;
  }
  for (const problem of problems) log(keptRules(problem));
  return problems.length > 0;
}
