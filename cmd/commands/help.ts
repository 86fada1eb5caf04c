/**
 * What the command line says about itself.
 *
 * @module
 */
import { findPlugin, pluginNames } from "../../plugins/registry.ts";
import { VERSIONS } from "../../spec/version.ts";
import { formatOptions } from "../options.ts";
import { RUN_OPTIONS } from "./run_arguments.ts";
import { programVersion } from "../version.ts";

/** The text for `cni --help`. */
function generalHelp(): string {
  const names = pluginNames();
  const width = Math.max(...names.map((name) => name.length));
  const plugins = names.map((name) => `  ${name.padEnd(width)}  ${findPlugin(name)?.about}`);
  return `A whole CNI installation in one program: the runtime and its plugins.

usage:
  cni run add|check|del|gc|status NETWORK [NETNS]   attach, check, detach a container
  cni run restore [NETWORK]                         put back rules that somebody flushed
  cni run list|derive                               what is attached; what plugins would be asked
  cni netns add|del|list|exec                       named network namespaces
  cni install DIR                                   put the plugins where a container engine looks for them
  cni plugin NAME                                   be a plugin: CNI_* variables and stdin, as engines call it
  cni --help | --version                            "cni run --help" says more of run

plugins, also run by a link of that name to this program:
${plugins.join("\n")}
`;
}

/** The text for `cni run --help`. */
function runHelp(): string {
  return `usage:
  cni run add    NETWORK NETNS          attach; prints the result
  cni run check  NETWORK NETNS          fails if it is no longer as it was attached
  cni run del    NETWORK [NETNS]        detach; without NETNS by --container-id
  cni run gc     NETWORK --valid ID/IFNAME … | --all
                                        detach everything else; ID as in "cni run list", or the name
                                        of the namespace
  cni run status NETWORK                fails if nothing could be attached; names keys of the
                                        configuration that are likely to be misspelt
  cni run restore [NETWORK | --all]     put back the rules of what is attached, after "nft flush
                                        ruleset", "firewall-cmd --reload" or the like; what is
                                        there already is not touched; prints JSON
  cni run list   [NETWORK]              what is attached, as far as it is remembered
  cni run derive NETWORK [NETNS]        prints what each plugin would read, and calls none; of an ADD,
                                        what the plugin before would answer is not in it

NETWORK  a name in the configuration directory, a path (with a "/"), or - for stdin;
         "default" is there without configuration
NETNS    a name under /run/netns, or a path (with a "/"); gc and status take one, as cnitool
         does, and do not look at it

options, in brackets the variable that stands in for one:
${formatOptions(RUN_OPTIONS)}

exit status: 0 done, 1 failed, 2 the command line cannot be understood

example:
  cni netns add web && cni run add default web -p 8080:80
`;
}

const INSTALL_HELP = `usage:
  cni install DIR [--copy] [--force]

Puts a relative link to this program into DIR for every plugin, and for "cni" itself.

options:
      --copy   copy the program, for a DIR that is seen where the program is not, as in a container
      --force  replace files that were not put there by this program
`;

const NETNS_HELP = `usage:
  cni netns [list]             names, one per line
  cni netns add NAME
  cni netns del NAME
  cni netns exec NAME COMMAND…

The same namespaces as those of "ip netns".
`;

const PLUGIN_HELP = `usage:
  cni plugin NAME

Runs a plugin as container engines do: CNI_COMMAND and its like in the environment, the configuration on stdin.
`;

/** The help for a command; general help for an empty or unknown one. */
export function helpText(command: string): string {
  switch (command) {
    case "run":
      return runHelp();
    case "install":
      return INSTALL_HELP;
    case "netns":
      return NETNS_HELP;
    case "plugin":
      return PLUGIN_HELP;
    default:
      return generalHelp();
  }
}

/** The text for `cni --version`. */
export function versionText(): string {
  return `cni ${programVersion()}
CNI protocol versions supported: ${VERSIONS.join(", ")}
plugins: ${pluginNames().join(", ")}
`;
}
