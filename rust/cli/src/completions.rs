//! `completions`: the script by which a shell completes verbs, options and paths of the command line.

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use crate::args::{Cli, CompletionsArgs, ShellName};
use crate::failure::Failure;
use crate::output;

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    output::text(script(args.shell).trim_end())
}

fn script(shell: ShellName) -> String {
    let shell = match shell {
        ShellName::Bash => Shell::Bash,
        ShellName::Zsh => Shell::Zsh,
        ShellName::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "lakemark", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Verbs with the one above them, `help` of clap's own left out.
    fn verbs() -> Vec<(String, String)> {
        let below = |command: &clap::Command| {
            let name = command.get_name().to_owned();
            let verbs = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect::<Vec<_>>();
            verbs.into_iter().map(move |verb| (name.clone(), verb)).collect::<Vec<_>>()
        };
        let command = Cli::command();
        let nested = command.get_subcommands().flat_map(below).collect::<Vec<_>>();
        [below(&command), nested].concat()
    }

    #[test]
    fn every_script_names_every_verb() {
        let verbs = verbs();
        assert!(verbs.contains(&("lakemark".to_owned(), "serve".to_owned())), "{verbs:?}");
        assert!(verbs.contains(&("index".to_owned(), "advise".to_owned())), "{verbs:?}");
        let [bash, zsh, fish] = [ShellName::Bash, ShellName::Zsh, ShellName::Fish].map(script);
        for (above, verb) in verbs {
            assert!(bash.contains(&format!("{above},{verb})\n")), "bash: {above} {verb}");
            assert!(zsh.contains(&format!("\n'{verb}:")), "zsh: {above} {verb}");
            assert!(fish.contains(&format!(" -a \"{verb}\" -d ")), "fish: {above} {verb}");
        }
        for script in [bash, zsh, fish] {
            assert!(script.contains("max-rows"), "{script}");
        }
    }
}
