import { listNamedNetns } from "../../ffi/netns/named.ts";
import { shellCommand } from "../../spec/shell_command.ts";
import { CniError, Code } from "../../spec/error.ts";
import { suggestion } from "../../spec/suggest.ts";

/** @throws {CniError} code 8, with a suggestion */
export function requireNamedNetns(name: string): void {
  const names = listNamedNetns();
  if (names.includes(name)) return;
  const hint = suggestion(name, names);
  throw new CniError(Code.InvalidNetns, `There is no network namespace ${JSON.stringify(name)} in /run/netns${hint}`, {
    details: '"cni netns list" names all',
  });
}

export function refuseNamedNetns(name: string): void {
  if (!listNamedNetns().includes(name)) return;
  throw new CniError(Code.InvalidNetns, `There is a network namespace ${JSON.stringify(name)} in /run/netns already`, {
    details: `to get an empty one, type first: ${shellCommand(["cni", "netns", "del", name])}`,
  });
}
