#compdef spdlctl
# SPDX-License-Identifier: Apache-2.0
# Completion of spdlctl for zsh. In ~/.zshrc, behind 'autoload -U compinit; compinit':
#   source <(spdlctl completion zsh)
# or as a file _spdlctl in a directory of $fpath.
# 'spdlctl __complete WORD...' prints what the last word may become: a line for each candidate, which
# is its word, a tab and what it means, and a last one that begins with ':' and says what else there is.

_spdlctl() {
  local -a answer described options
  local program=${words[1]/#\~/$HOME} line also
  answer=("${(@f)$($program __complete "${(@)words[2,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
  also=$answer[-1]
  answer[-1]=()
  for line in $answer; do
    described+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  [[ $also != *nospace* ]] || options=(-S '')
  (( ! $#described )) || _describe -t spdlctl 'spdlctl' described "${(@)options}"
  if [[ $also == *(files|directories)* ]]; then
    [[ $PREFIX != --*=* ]] || compset -P '*='
    if [[ $also == *files* ]]; then _files; else _files -/; fi
  fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _spdlctl "$@"
else
  compdef _spdlctl spdlctl
fi
