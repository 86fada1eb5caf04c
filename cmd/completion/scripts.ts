/**
 * The scripts only ask the program, which knows the words. The first line of its answer says whether paths fit too.
 * @module
 */

export const SHELLS = ["bash", "zsh", "fish"] as const;
export type Shell = typeof SHELLS[number];

export const COMPLETION_SCRIPTS: Readonly<Record<Shell, string>> = {
  bash: `_cni() {
  local paths
  { read -r paths; mapfile -t COMPREPLY; } < <("$1" complete-words bash -- "\${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
  case $paths in
    files) compopt -o default ;;
    directories) compopt -o dirnames ;;
  esac
}
complete -F _cni cni
`,
  zsh: `#compdef cni
_cni() {
  local paths word about
  local -a before candidates
  before=("\${(@Q)words[2,CURRENT-1]}")
  {
    read -r paths
    while IFS=$'\\t' read -r word about; do candidates+=("\${\${word//\\\\/\\\\\\\\}//:/\\\\:}:$about"); done
  } < <("\${(Q)words[1]}" complete-words zsh -- $before "\${(Q)PREFIX}" 2>/dev/null)
  case $paths in
    files) compset -P '--*='; _files ;;
    directories) compset -P '--*='; _files -/ ;;
    *) _describe cni candidates ;;
  esac
}
if [[ $funcstack[1] == _cni ]]; then _cni "$@"; else compdef _cni cni; fi
`,
  fish: `function __cni_complete
  set -l words (commandline -opc)
  set -l token (commandline -ct)
  set -l current (string unescape -- $token; or string replace -r '^["\\']' '' -- $token)
  set -l lines ($words[1] complete-words fish -- $words[2..] "$current" 2>/dev/null)
  set -l option (string match -r -- '^--[^=]*=' $current)
  set -l value (string replace -r -- '^--[^=]*=' '' $current)
  switch "$lines[1]"
    case files
      string replace -r -- '^' "$option" (__fish_complete_path "$value")
    case directories
      string replace -r -- '^' "$option" (__fish_complete_directories "$value")
    case '*'
      string join \\n -- $lines[2..]
  end
end
complete -c cni -f -a '(__cni_complete)'
`,
};
