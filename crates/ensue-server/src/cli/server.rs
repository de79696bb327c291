//! Which server does a command talk to?
//!
//! The one that is named, or else the one that `ensue serve` would start in this folder: the same variables and the
//! same config file say where that listens and which token opens it. A token of this folder's config file is for this
//! folder's server: it is not sent to one that is named.

use super::remote::Remote;
use crate::config::file::{ConfigFile, place};
use crate::config::tokens::{self, NamedToken};
use crate::config::{DEFAULT_LISTEN, listen};
use anyhow::Context;
use clap::Args;
use std::path::{Path, PathBuf};

/// The part of a command's help about all this.
pub const WHERE: &str = "Where the log is";

/// The server, and what opens it.
#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// The server [default: where `ensue serve` would listen in this folder, http://127.0.0.1:4747 unless told]
    #[arg(long, help_heading = WHERE, env = "ENSUE_URL", value_name = "URL")]
    pub url: Option<String>,
    /// Its token; others on this machine can see flags, but not ENSUE_TOKEN or what is in --token-file
    #[arg(long, help_heading = WHERE, env = "ENSUE_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// A file with its token (the first one counts) [default: the config file's, without --url]
    #[arg(long, help_heading = WHERE, env = "ENSUE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The config file of the server [default: ./ensue.yaml if it is there]
    #[arg(long, help_heading = WHERE, env = "ENSUE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl ServerArgs {
    /// Makes ready to talk to the server; nothing is sent yet.
    pub fn remote(&self) -> anyhow::Result<Remote> {
        let (url, token_file) = match &self.url {
            Some(url) => (url.clone(), None),
            None => {
                let (config, file) = ConfigFile::find(self.config.as_deref())?;
                let url = match (std::env::var("ENSUE_LISTEN").ok(), &config.listen, file) {
                    (Some(listen), _, _) => listen::client_url(&listen).context("ENSUE_LISTEN")?,
                    (None, Some(listen), Some(file)) => {
                        listen::client_url(&listen.value).with_context(|| place(&file, listen))?
                    }
                    (None, _, _) => listen::client_url(DEFAULT_LISTEN)?,
                };
                (url, config.token_file)
            }
        };
        Remote::new(&url, self.token(token_file.as_deref())?)
    }

    /// The token that is given, or the first of the file that is; `None` where neither is.
    fn token(&self, configured: Option<&Path>) -> anyhow::Result<Option<NamedToken>> {
        if let Some(token) = &self.token {
            return NamedToken::new("--token or ENSUE_TOKEN", token).map(Some);
        }
        let Some(file) = self.token_file.as_deref().or(configured) else { return Ok(None) };
        let token = tokens::read(file)?.into_iter().next();
        Ok(token.map(|token| NamedToken { name: format!("{} of {}", token.name, file.display()), ..token }))
    }
}
